"""Exports: the rows of a query as a file in one of several formats.

From a request to bytes:
  response.py      respond: chooses the company, sends the file
  output.py        find_output, write: the file's type, and the module or mapper that writes it
  request.py       read_request: parameters -> ExportRequest (the formats: app/formats.py)
  shape.py         the fields, children and columns of the query's rows
  statements.py    shape -> a COPY statement, in which a row format makes each row's text
  difference.py    the same of what differs between two versions (its tables: difference_tables.py)
  content.py       what an export holds, of the one or the other kind
  row_formats.py   what row formats have to do, and the SQL that they share
  read.py          Reader: runs the statement, yields blocks of rows
  to_*.py          one module for each format: its row format, and write(), which yields the file (Excel's rows: excel_cells.py;
                   Parquet's file format: parquet.py)
  custom.py        mappers: templates, and import mappings in reverse
  process.py       runs layout.py (PDF pages, with typeface.py) and sandbox.py (templates) as child processes

To add a format: an entry in app/formats.py and a module to_<name>.py.
"""
