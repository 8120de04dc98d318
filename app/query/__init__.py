"""From query text to SQL.  `$filter` of OData and the SQL-like filter of /c, hooks and @where pass through the same phases:

1. parse     parse_odata, parse_where (with parser and grammars/*.lark): text -> syntax nodes (nodes)
2. check     check_odata, check_where (with check, functions, types, literals): nodes -> typed expressions over the catalog (tree);
             check_apply: $apply -> Groups; check_key: `(12)` in a path -> RowKey; indexable: forms that an index serves
3. query     options (with parse_expand, paging): all options of a request -> one Query (query); print_odata: a condition as
             $filter; moments: a version or time -> a past state
4. compile   sql_statements: a Query -> a Statement, composed by sql_select, sql_groups ($apply) or sql_past_select (a
             past state, with sql_past), with sql_expressions (conditions), sql_rows (JSON output) and sql_parameters ($1, $2 ...),
             and kept for the next query of its shape (cache); sql_conditions: stored filters of hooks and @where -> SQL text

A text that is wrong raises QueryError with a character position in phase 1 or 2; phases 3 and 4 work on checked values only.
"""
