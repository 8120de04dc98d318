"""Reads Excel workbooks in a child process: `python -m app.mapper.workbook` turns a worksheet into frames of rows.

    the main module   __main__.py: sets limits, writes frames to standard output
    the zip file      container.py: parts of bounded size, as XML without document types; the sheets and what they refer to
    the content       sheet.py: rows of a worksheet, with texts.py (the texts that cells share) and styles.py (which are dates)
    what both share   frames.py: a frame of rows as bytes, and its values

Whatever a file contains, the memory of a child is limited, and the parent may kill it at any time.
"""
