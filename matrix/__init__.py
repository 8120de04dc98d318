"""The matrix: the same work in databases of several servers, locales, encodings and owners, with the same results.

`python -m matrix` makes a cluster for each cell, works in it as an operator and a client do, and compares what the cells give.  The
modules: servers (where servers come from, and clusters), work (what is done in a cell, and what must come of it), cells (the table
of cells).  A cell whose server, locale or program this machine lacks is listed with the reason, and is no failure.
"""
