"""What a database is built of, by its catalog."""

from __future__ import annotations

import psycopg


def assert_built_alike(url: str, other: str) -> None:
    """Relations, columns, constraints, indexes, triggers, functions and rights are those of the other, but for the warehouses that a DBA registered."""
    with psycopg.connect(url) as one, psycopg.connect(other) as two:
        for name, query in BUILT.items():
            here, there = ({*each.execute(query.encode())} for each in (one, two))
            assert not here ^ there, (name, here ^ there)


OURS = "(n.nspname ~ '^bds' or n.nspname in ('data', 'api', 'my', 'staging')) and c.relname !~ '^(warehouses|change_log_\\d)'"
BUILT = {
    "columns": f"""
        select n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where {OURS} and c.relkind in ('r', 'p', 'v') and not a.attisdropped order by 1, 2, 3""",
    "rights": f"""
        select n.nspname, c.relname, pg_get_userbyid(c.relowner), array(select x::text from unnest(coalesce(c.relacl, acldefault('r', c.relowner))) x order by 1)::text, c.relrowsecurity
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where {OURS} and c.relkind in ('r', 'p', 'v') order by 1, 2""",
    "constraints": f"""
        select n.nspname, c.relname, k.conname, pg_get_constraintdef(k.oid)
        from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_namespace n on n.oid = c.relnamespace where {OURS} order by 1, 2, 3""",
    "indexes": f"""
        select n.nspname, c.relname, i.indexdef from pg_indexes i join pg_namespace n on n.nspname = i.schemaname
        join pg_class c on c.relnamespace = n.oid and c.relname = i.tablename where {OURS} order by 1, 2, 3""",
    "triggers": f"""
        select n.nspname, c.relname, pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
        join pg_namespace n on n.oid = c.relnamespace where {OURS} and not t.tgisinternal order by 1, 2, 3""",
    "policies": f"""
        select n.nspname, c.relname, p.polname, p.polcmd, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
        from pg_policy p join pg_class c on c.oid = p.polrelid join pg_namespace n on n.oid = c.relnamespace where {OURS} order by 1, 2, 3""",
    "functions": """
        select n.nspname, p.oid::regprocedure::text, p.prosecdef, p.proconfig::text, pg_get_userbyid(p.proowner), pg_get_function_result(p.oid), md5(p.prosrc),
            array(select x::text from unnest(p.proacl) x order by 1)::text
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname ~ '^bds' and p.proname !~ 'warehouses' order by 1, 2""",
    "schemas": "select nspname, array(select x::text from unnest(nspacl) x order by 1)::text from pg_namespace where nspname ~ '^bds' or nspname in ('data', 'api', 'my', 'staging') order by 1",
}  # fmt: skip
