"""Text to syntax: the grammars of grammars/*.lark, run by parser, and the nodes that they give.

odata reads the options of OData that are expressions, expand splits $expand, where reads the SQL-like filter of /c.
"""
