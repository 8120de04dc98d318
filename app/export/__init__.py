"""Exports: the rows of a query as a file in one of several formats.

From a request to bytes:
  response.py      respond: chooses the company, sends the file; write_export: picks the format's module
  request.py       read_request: parameters -> ExportRequest; FILE_TYPES: the formats
  shape.py         the fields, children and columns of the query's rows
  statements.py    shape -> a COPY statement, in which a row format makes each row's text
  row_formats.py   what row formats have to do, and the SQL that they share
  read.py          Reader: runs the statement, yields blocks of rows
  to_*.py          one module for each format: its row format, and write(), which yields the file (Excel's rows: excel_cells.py;
                   Parquet's file format: parquet.py)
  custom.py        mappers: templates, and import mappings in reverse
  process.py       runs layout.py (PDF pages, with typeface.py) and sandbox.py (templates) as child processes

To add a format: a module to_<name>.py, an entry in FILE_TYPES, a case in write_export, and its name in FORMATS of app/web/export.py
and in the help of app/cli/parser.py.
"""
