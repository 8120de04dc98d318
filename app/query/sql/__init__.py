"""Checked queries to SQL: statements makes a Statement of a Query, and keeps it for the next query of its shape (cache).

It is composed by select, groups ($apply) or past_select (a past state, with past), with expressions (conditions), rows (JSON) and
parameters ($1, $2 ...).  conditions makes stored filters of hooks and @where the text of SQL.  difference reads what
differs between two versions, delta what changed for a reader of a collection.
"""
