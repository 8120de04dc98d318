"""OData v4, read-only: request (parse) -> plan (check, compile) -> response (run, stream); metadata for the two documents.

batch answers several requests, delta opens the range of a delta link.
"""
