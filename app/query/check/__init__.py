"""Syntax to checked queries: nodes become typed expressions over the catalog (tree), all options of a request one Query (query).

conditions  odata and where, with what they share (checker), and either of them; functions, types (conversions), indexable (forms
            that an index serves)
apply       $apply -> Groups; key: `(12)` in a path -> RowKey
requests    options, with paging, delta (links to later changes) and moments (a version or time -> a past state)
print_odata a condition as $filter
"""
