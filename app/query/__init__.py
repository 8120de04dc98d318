"""From query text to SQL, in three steps: parse, check, sql.  Each imports those before it alone.

`$filter` of OData and the SQL-like filter of /c, hooks and @where pass through the same ones.  A text that is wrong raises
QueryError with a character position while it is parsed or checked; what follows works on checked values only.
"""
