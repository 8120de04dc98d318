"""What each role of the database may do, as a table; everything else is tried, and refused.

A role, a relation or a definer function that is not in the tables fails the test: a new one must be listed with its rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Operator

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("bds_reader", "bds_writer", "bds_service", "bds_worker", "bds_operator", "bds_importer", "bds_dispatcher", "bds_analyst")
OWNER = "bds_owner"  # to which everything belongs, and as which nobody serves
MEMBERS = {
    ("bds_reader", "bds_worker"),
    ("bds_operator", OWNER),
    ("bds_writer", OWNER),
    ("bds_writer", "bds_importer"),
    ("bds_importer", OWNER),
    ("bds_reader", OWNER),
    ("bds_reader", "bds_dispatcher"),
    ("bds_dispatcher", OWNER),
    ("bds_analyst", OWNER),
    ("pg_read_all_stats", OWNER),  # to show who holds a turn, and since when
}  # (role, who else may act as it)
R, W = "select", "select insert update delete"

# relation -> what reader, writer, service, worker, operator, importer and dispatcher may do; "" is nothing; api, data, my and past
# are named once for all of their relations; the analyst reads my alone
RELATIONS: dict[str, tuple[str, str, str, str, str, str, str]] = {
    "api.*": (R, R, "", R, R, R, R),
    "data.*": ("", W, "", "", W, W, ""),
    "my.*": ("", "", "", "", "", "", ""),
    "past.*": (R, "", "", R, R, "", R),
    "bds.all_changes": ("", "", "", "", "", "", ""),
    "bds.api_keys": ("", "", R, "", R, "", ""),
    "bds.audit": ("", "", "", "", R, "", ""),
    "bds.audit_pending": ("", "", "", "", "", "", ""),
    "bds.company_audit": ("", "", "", "", "", "", ""),
    "bds.server_audit": ("", "", "", "", "", "", ""),
    "bds.change_archive": ("", "", "", "", R, "", ""),
    "bds.change_log": ("", "", "", R, R, R, R),
    "bds.change_log_*": ("", "", "", "", "", "", ""),
    "bds.change_months": (R, R, "", R, R, R, R),
    "bds.change_set_positions": ("", "", "", "", "", "", ""),
    "bds.change_sets": (R, R, "", R, R, R, R),
    "bds.changes": (R, R, "", R, R, R, R),
    "bds.clocks": ("", "", R, R, R, R, R),
    "bds.company_logins": ("", "", "", "", R, "", ""),
    "bds.companies": ("", "", R, R, R, "", R),
    "bds.counted_change_sets": ("", "", "", "", "", "", ""),
    "bds.deliveries": ("", "", R, R, W, "", W),
    "bds.delivery_attempts": ("", "", R, R, W, "", W),
    "bds.column_history": ("", "", "", "", R, R, ""),
    "bds.directory": ("", "", R, "", R, "", ""),
    "bds.entities": (R, R, R, R, R, R, R),
    "bds.generated": ("", "", "", "", "", "", ""),
    "bds.log_comparisons": ("", "", "", "", R, "", ""),
    "bds.log_findings": ("", "", "", "", R, "", ""),
    "bds.log_problems": ("", "", "", "", R, "", ""),
    "bds.problem_counts": ("", "", R, "", R, "", ""),
    "bds.problems": ("", "", "", "", R, "", ""),
    "bds.entity_positions": ("", "", "", R, R, "", R),
    "bds.erasures": (R, R, "", R, R, R, R),
    "bds.fields": (R, R, R, R, R, R, R),
    "bds.hook_columns": ("", "", R, R, R, "", R),
    "bds.hook_filters": ("", "", R, R, W, "", W),
    "bds.hook_health": ("", "", R, R, R, "", R),
    "bds.hook_positions": ("", "", R, R, W, "", W),
    "bds.hook_queue": ("", "", R, R, W, "", W),
    "bds.hook_secrets": ("", "", "", "", "", "", W),
    "bds.hook_states": ("", "", R, R, W, "", W),
    "bds.hooks": ("", "", R, R, W, "", W),
    "bds.import_columns": ("", R, "", "", R, R, ""),
    "bds.import_errors": (R, R, "", R, W, W, R),
    "bds.import_keys": ("", "", "", "", W, W, ""),
    "bds.imports": (R, R, "", R, W, W, R),
    "bds.linkage_weights": (R, R, "", R, W, R, R),
    "bds.login_networks": ("", "", "", "", R, "", ""),
    "bds.mappers": (R, R, "", R, R, R, R),
    "bds.versions": (R, R, R, R, R, R, R),
    "bds.navigations": (R, R, R, R, R, R, R),
    "bds.places": ("", "", "", "", "", "", ""),  # all columns but the secret, which only its owner reads
    "bds.positions": (R, R, "", R, R, R, R),
    "bds.company_positions": (R, R, R, R, R, R, R),
    "bds.generations": (R, R, R, R, R, R, R),
    "bds.turns": ("", "", "", "", R, "", ""),
    "bds_feed.entities": ("", "", "", "", "", R, ""),
    "bds_feed.state": ("", "", "", "", "", R, ""),
    "bds_feed.tables": ("", "", "", "", "", R, ""),
    "bds_feed.templates": ("", "", "", "", "", R, ""),
    "bds_impl.types": ("", "", "", "", "", R, ""),
    "bds_feed.versions": ("", "", "", "", "", R, ""),
    "bds_operation.made": ("", "", "", "", "", "", ""),
    "bds.seal_findings": ("", "", "", "", R, "", ""),
    "bds.seal_positions": ("", "", "", "", R, "", ""),
    "bds.seals": ("", "", "", "", R, "", ""),
    "bds.unfit_hooks": ("", "", "", R, R, "", ""),
    "bds.residents": ("", "", R, R, R, R, R),
    "bds.secrets": ("", "", "", "", "", "", ""),
    "bds.sessions": ("", "", "", "", R, "", ""),
    "bds.settings": ("", "", "", "", R, "", ""),
    "bds.tables": ("", "", "", "", R, "", ""),
    "bds.tenants": ("", "", "", "", R, "", ""),
    "bds.users": ("", "", "", "", "", "", ""),  # the operator: all columns but the password's hash
    "bds.wrong_credentials": ("", "", "", "", R, "", ""),
    "bds.wrong_logins": ("", "", "", "", R, "", ""),
    "public.bds_migrations": ("", "", R, "", "", "", ""),
}
# column by column where a relation is not given whole
COLUMNS = {
    ("bds.users", "bds_operator"): "id email companies is_administrator created_at last_login_at",
    ("bds.users", "bds_service"): "id email companies is_administrator created_at last_login_at",
    ("bds.places", "bds_operator"): "name url is_draining created_at",
    ("bds.places", "bds_service"): "name url is_draining created_at",
    ("bds.settings", "bds_service"): "place",
}
# functions that run with their owner's rights: all that lends a role what it has not itself
DEFINERS = {
    "bds_analyst": "",
    "bds_reader": "is_altered is_deep last_changes number_of ranges_with require_registered diff versions_between find_changes find_version set_range set_version version_of change_sets change_values authenticate count_changes count_rows first_change import_report row_at row_history rows_at match_filters log_head rows_where refuse_absent",
    "bds_writer": """end_request restore revert_range forget_version name_version diff versions_between find_changes find_version set_range set_version version_of change_sets change_values first_change import_begin import_cancel import_document import_fail import_note_positions import_progress import_received import_report
        import_rows import_run import_stage lock_company log_head refuse_absent revert
        row_at row_history rows_at set_context""",
    "bds_service": """answer_request audit claim_request end_request end_rest note_request replay_hook find_version forget_version name_version authenticate backlog begin_attempt begin_session count_wrong create_company create_hook create_key create_user delete_company delete_hook delete_mapper delete_user
        end_attempt end_session join_company last_generation keep_secret keys_of lock_hook maintain note_use
        password_of put_mapper reap_imports replace_password retry_delivery revoke_key rotate_hook session set_access set_context set_password test_hook update_hook whole_tenants""",
    "bds_worker": """is_altered is_deep last_changes number_of ranges_with require_registered disable_failing diff versions_between find_changes find_version refuse_absent set_range set_version version_of change_sets change_values authenticate claim_deliveries count_changes count_rows first_change forget_deliveries import_report record_attempts refit_hook release_leases renew_leases route_changes row_at row_history log_head rows_at
        match_filters rows_where""",
    "bds_operator": """audit is_altered is_deep last_changes number_of ranges_with require_registered disable_failing end_request end_rest replay_hook restore revert_range forget_version name_version diff versions_between find_changes find_version refuse_absent set_range set_version version_of change_sets change_values backlog claim_deliveries compare_log count_changes count_rows create_company create_hook create_key create_user delete_company log_head has_head verify_log verify_sealed delete_hook
        delete_mapper delete_user erase first_change grant_company forget_deliveries import_begin import_cancel import_document import_fail
        import_note_positions import_progress import_received import_report import_rows import_run import_stage keys_of last_generation lock_company lock_hook maintain put_mapper reap_imports record_attempts
        refit_hook release_leases renew_leases retry_delivery revert revoke_company revoke_key rotate_hook route_changes row_at row_history rows_at set_context
        set_access set_password set_retention table_problems test_hook turn_holders update_hook whole_tenants""",
    "bds_importer": """answer_request claim_request end_request may_have_lost model_time note_request preview restore revert_range forget_version name_version diff versions_between find_changes find_version refuse_absent set_range set_version version_of change_sets change_values first_change import_begin import_cancel import_document import_fail import_note_positions import_progress import_received import_report import_rows
        import_run import_stage lock_company note_change_set refuse_company require_unaltered revert row_at row_history rows_at rows_where set_context log_head settle""",
    "bds_dispatcher": """is_altered is_deep last_changes number_of ranges_with require_registered disable_failing end_rest replay_hook diff versions_between find_changes find_version refuse_absent set_range set_version version_of change_sets change_values authenticate filter_columns log_terms claim_deliveries count_changes count_rows create_hook delete_hook first_change forget_deliveries
        import_report log_head lock_hook
        record_attempts refuse_company refit_hook release_leases renew_leases retry_delivery rotate_hook route_changes row_at row_history rows_at rows_where match_filters test_hook update_hook""",
}
HOOKS = """claim_deliveries create_hook delete_hook disable_failing end_rest forget_deliveries lock_hook record_attempts refit_hook release_leases renew_leases
    replay_hook retry_delivery rotate_hook route_changes test_hook update_hook"""
# the role they run as, if not the owner
AS = {
    "answer_request": "bds_importer",
    "claim_request": "bds_importer",
    "end_request": "bds_importer",
    "note_request": "bds_importer",
    "import_begin": "bds_importer",
    "import_cancel": "bds_importer",
    "import_document": "bds_importer",
    "import_fail": "bds_importer",
    "import_note_positions": "bds_importer",
    "import_progress": "bds_importer",
    "import_received": "bds_importer",
    "import_report": "bds_importer",
    "import_rows": "bds_importer",
    "import_run": "bds_importer",
    "import_stage": "bds_importer",
    "match_filters": "bds_reader",
    "restore": "bds_importer",
    "revert": "bds_importer",
    "revert_range": "bds_importer",
    "rows_where": "bds_reader",
    **dict.fromkeys(HOOKS.split(), "bds_dispatcher"),
}
SESSIONS = ROLES[:-1]
SCHEMAS = {  # schema -> roles with USAGE; with CREATE
    "api": (SESSIONS, ()),
    "bds": (SESSIONS, ()),
    "bds_accounts": ((), ()),
    "bds_audit": ((), ()),
    "bds_change_log": (("bds_importer",), ()),
    "bds_feed": (("bds_importer",), ()),
    "bds_import": (("bds_importer",), ()),
    "bds_impl": (("bds_importer", "bds_dispatcher"), ()),
    "bds_log": (("bds_importer",), ()),
    "bds_operation": ((), ()),
    "bds_registry": (("bds_importer",), ()),
    "bds_revert": (("bds_importer",), ()),
    "bds_seals": ((), ()),
    "bds_service": (SESSIONS, ()),
    "bds_shards": ((), ()),
    "bds_webhooks": (("bds_dispatcher",), ("bds_dispatcher",)),
    "data": (("bds_writer", "bds_operator", "bds_importer"), ()),
    "bds_past": (("bds_importer",), ()),
    "my": (("bds_analyst",), ()),
    "past": (("bds_reader", "bds_operator", "bds_importer", "bds_worker", "bds_dispatcher"), ()),
    "public": (ROLES, ()),
    "staging": (("bds_writer", "bds_operator", "bds_importer"), ("bds_importer",)),
}


@pytest.fixture(scope="module")
def operator(module_database_url: str) -> Iterator[Operator]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield Operator(connection)


@pytest.fixture(scope="module")
def as_role(module_database_url: str) -> Iterator[Callable[[str], psycopg.Connection]]:
    """Connections of a login that is the role itself, not of a superuser that has set the role."""
    opened: dict[str, psycopg.Connection] = {}

    def connect(role: str) -> psycopg.Connection:
        if role not in opened:
            opened[role] = psycopg.connect(module_database_url, autocommit=True)
            opened[role].execute(f"set session authorization {role}".encode())
        return opened[role]

    yield connect
    for each in opened.values():
        each.close()


def kind(relation: str) -> str:
    """A relation's name in RELATIONS."""
    schema, _, name = relation.partition(".")
    if schema in ("api", "data", "my", "past"):
        return f"{schema}.*"
    return "bds.change_log_*" if re.fullmatch(r"change_log_\d{4}_\d{2}", name) else relation


def rights(relation: str, role: str) -> list[str]:
    """What a role may do with a relation."""
    if role == "bds_analyst":
        return [R] if relation.startswith("my.") else []
    rewrites = relation.startswith("data.") and role in ("bds_importer", "bds_operator")
    return RELATIONS[kind(relation)][ROLES.index(role)].split() + ["maintain"] * rewrites


def relations(operator: Operator) -> list[tuple[str, list[str]]]:
    """Every table and view of ours, and its columns."""
    return operator.rows("""
        select n.nspname || '.' || c.relname, array(
            select a.attname from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind in ('r', 'v', 'm', 'p', 'f') and n.nspname not in ('pg_catalog', 'information_schema')
            and n.nspname !~ '^pg_(toast|temp)'
        order by 1
    """)  # type: ignore[return-value]


def test_the_roles_are_these_and_none_is_mighty(operator: Operator) -> None:
    assert operator.rows(
        "select rolname, rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls or rolcanlogin"
        " from pg_roles where rolname like 'bds%%' order by rolname"
    ) == [(role, False) for role in sorted((*ROLES, OWNER))]
    found = set(
        operator.rows(
            "select r.rolname, m.rolname from pg_auth_members a join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member"
            " where m.rolname like 'bds%%'"
        )
    )
    assert found == MEMBERS


def test_every_relation_is_in_the_table(operator: Operator) -> None:
    assert {kind(name) for name, _ in relations(operator)} == set(RELATIONS)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_these_rights_in_relations_and_no_other(operator: Operator, role: str) -> None:
    found, expected = {}, {}
    for name, columns in relations(operator):
        quoted = ".".join(f'"{part}"' for part in name.split(".", 1))
        privileges = operator.rows(
            "select p from unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger', 'maintain']) p"
            " where has_table_privilege(%s, %s, p)",
            (role, quoted),
        )
        found[name] = {right for (right,) in privileges}
        expected[name] = set(rights(name, role))
        if "select" not in expected[name]:
            few = COLUMNS.get((name, role), "").split()
            readable = operator.rows(
                "select c from unnest(%s::text[]) c where has_column_privilege(%s, %s, c, 'select')", (columns, role, quoted)
            )
            assert sorted(each for (each,) in readable) == sorted(few), (role, name)
    assert found == expected


STATEMENTS = {
    "select": "select * from {relation} limit 0",
    "insert": "insert into {relation} default values",
    "update": "update {relation} set {column} = {column} where false",
    "delete": "delete from {relation} where false",
    "truncate": "truncate {relation}",
    "trigger": "create trigger mine before insert on {relation} for each statement execute function suppress_redundant_updates_trigger()",
    "alter": "alter table {relation} add column mine int",
    "drop": "drop table {relation} cascade",
    "policy": "alter table {relation} disable row level security",
    "grant": "grant all on {relation} to public",
}


@pytest.mark.parametrize("role", ROLES)
def test_every_statement_that_the_table_does_not_allow_is_refused(
    operator: Operator, as_role: Callable[[str], psycopg.Connection], role: str
) -> None:
    connection = as_role(role)
    for name, columns in relations(operator):
        allowed = rights(name, role)
        quoted = ".".join(f'"{part}"' for part in name.split(".", 1))
        for verb, statement in STATEMENTS.items():
            text = statement.format(relation=quoted, column=f'"{columns[0]}"')
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(text.encode())
                state, by_policy = None, False
            except psycopg.Error as error:
                state, by_policy = error.sqlstate, "row-level security" in str(error)
            if verb in allowed:
                assert state != "42501" or by_policy, (role, text)
            elif verb == "grant" and state is None:
                continue  # PostgreSQL warns that nothing was granted; the rights are looked at above
            else:
                assert state is not None, f"{role} may {text}"
    assert operator.rows(
        "select count(*) from pg_class c, aclexplode(c.relacl) a where a.grantee = 0 and c.relnamespace::regnamespace::text in ('bds', 'data', 'api')"
    ) == [(0,)]


def functions(operator: Operator, condition: str) -> list[tuple[str, str]]:
    """Name and a call with nulls of each function of ours."""
    return operator.rows(f"""
        select p.proname, format('%%s.%%I(%%s)', n.nspname, p.proname, (
            select string_agg('null::' || format_type(t, null), ', ' order by i) from unnest(p.proargtypes) with ordinality a (t, i)))
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where (n.nspname = 'public' or n.oid in (select s.schema from bds_impl.schemas() s)) and {condition} order by 1, 2
    """)  # type: ignore[return-value]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_call_these_definer_functions_and_no_other(
    operator: Operator, as_role: Callable[[str], psycopg.Connection], role: str
) -> None:
    allowed = set(DEFINERS[role].split())
    granted = {name for name, _ in functions(operator, f"p.prosecdef and has_function_privilege('{role}', p.oid, 'execute')")}
    assert granted == allowed
    for name, call in functions(operator, "p.prosecdef and p.prorettype <> 'trigger'::regtype"):
        if name not in allowed:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                as_role(role).execute(f"select {call}".encode())


def test_definer_functions_have_a_fixed_path_and_belong_to_the_owner(operator: Operator) -> None:
    found = operator.rows(
        "select p.proname, p.oid::regprocedure::text, pg_get_userbyid(p.proowner),"
        " exists (select from unnest(p.proconfig) c where c like 'search_path=pg_catalog%%pg_temp')"
        " and not has_function_privilege('public', p.oid, 'execute')"
        " from pg_proc p where p.prosecdef and p.pronamespace::regnamespace::text like 'bds%%'"
    )
    loose = [each for each in found if each[2] != AS.get(str(each[0]), OWNER) or not each[3]]
    assert loose == []


def test_the_documents_name_every_schema() -> None:
    table = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8").partition("| schema | content |")[2].partition("\n\n")[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split(" | ")[0])]
    internal = {name for name in SCHEMAS if name.startswith("bds_") and name not in named}  # the row "other `bds_...`"
    assert sorted(named) == sorted(SCHEMAS.keys() - {"public"} - internal) and "other `bds_...`" in table


def test_no_role_that_a_session_acts_as_looks_into_a_schema_of_internals(operator: Operator) -> None:
    roles = ("public", "bds_reader", "bds_writer", "bds_service", "bds_worker", "bds_operator", "bds_analyst")
    assert operator.rows(
        "select distinct s.name::text from unnest(%s::text[]) r, bds_impl.schemas() s"
        " where s.has_program and has_schema_privilege(r, s.schema, 'usage, create') order by 1",
        (list(roles),),
    ) == [("bds",), ("bds_service",)]


def test_a_public_function_may_be_called_by_somebody_and_says_what_it_does(operator: Operator) -> None:
    """\\df bds.* is the manual."""
    found = operator.rows(
        "select p.proname, obj_description(p.oid, 'pg_proc') is not null, p.proname in ('after_restore', 'drop_column', 'drop_views', 'register', 'unregister')"
        " or exists (select from unnest(%s::text[]) r where has_function_privilege(r, p.oid, 'execute'))"
        " from pg_proc p where p.pronamespace in ('bds'::regnamespace, 'bds_service'::regnamespace)",
        (list(ROLES),),
    )
    assert [name for name, described, called in found if not (described and called)] == []


def test_functions_of_bds_are_in_the_documents_and_others_are_called_by_the_service(operator: Operator) -> None:
    """\\df bds.* is the manual of a DBA.  What nobody but the service calls, itself or by a view, is in bds_service."""
    functions = "select p.proname::text from pg_proc p where p.pronamespace = %s::regnamespace"
    public = [name for (name,) in operator.rows(functions, ("bds",))]
    documents = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
    assert [name for name in public if not re.search(rf"\bbds\.{name}\b", documents)] == [] and len(public) <= 60
    by_views = operator.rows(
        "select p.proname::text from pg_depend d join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid"
        " join pg_proc p on d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid where p.pronamespace = 'bds_service'::regnamespace"
    )
    program = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))
    called = {name for (name,) in by_views} | set(re.findall(r"\bbds_service\.(\w+)\(", program))
    assert {name for (name,) in operator.rows(functions, ("bds_service",))} == called


def test_nobody_calls_a_function_because_everybody_may(operator: Operator) -> None:
    assert functions(operator, "has_function_privilege('public', p.oid, 'execute')") == []


@pytest.mark.parametrize("role", ROLES)
def test_schemas_are_looked_into_and_built_in_by_whom_the_table_names(
    operator: Operator, as_role: Callable[[str], psycopg.Connection], role: str
) -> None:
    ours = "nspname not like 'pg\\_%%' and nspname <> 'information_schema'"
    found = operator.rows(
        f"select nspname, has_schema_privilege(%s, oid, 'usage'), has_schema_privilege(%s, oid, 'create') from pg_namespace where {ours}",
        (role, role),
    )
    assert {name: (usage, create) for name, usage, create in found} == {
        name: (role in users, role in builders) for name, (users, builders) in SCHEMAS.items()
    }
    for name, (_, builders) in SCHEMAS.items():
        with as_role(role).transaction(force_rollback=True) as _:
            if role in builders:
                as_role(role).execute(f"create table {name}.mine ()".encode())
                continue
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                as_role(role).execute(f"create table {name}.mine ()".encode())


@pytest.mark.parametrize("role", ROLES)
def test_sequences_are_moved_by_writers_alone(operator: Operator, as_role: Callable[[str], psycopg.Connection], role: str) -> None:
    names = [name for (name,) in operator.rows("select oid::regclass::text from pg_class where relkind = 'S'")]
    assert len(names) > 9
    for name in names:
        if name == "bds.bell":  # set by whoever keeps the bell
            continue
        may = name.startswith("data.") and role in ("bds_writer", "bds_operator", "bds_importer")
        for statement in (f"select nextval('{name}')", f"select setval('{name}', 1000)", f"alter sequence {name} restart"):
            if may and "nextval" in statement:
                as_role(role).execute(statement.encode())
            elif not (may and "setval" in statement):
                with pytest.raises(psycopg.Error) as refused:
                    as_role(role).execute(statement.encode())
                assert refused.value.sqlstate == "42501"


FORBIDDEN = [
    "create role mine", "create database mine", "alter role current_user superuser", "alter system set log_statement = 'all'",
    "copy (select 1) to '/tmp/mine'", "copy (select 1) to program 'true'", "select pg_read_file('/etc/passwd')", "select pg_ls_dir('.')",
    "select lo_import('/etc/passwd')", "create extension adminpack", "create language plpython3u", "set session_replication_role = replica",
    "select pg_reload_conf()", "create event trigger mine on ddl_command_start execute function suppress_redundant_updates_trigger()",
    "create publication mine for all tables", "create server mine foreign data wrapper postgres_fdw",
    "set role postgres", "alter database postgres set log_statement = 'all'", "drop schema bds cascade",
    "alter default privileges for role bds_owner grant all on tables to public", "select rolpassword from pg_authid", "checkpoint",
    "select pg_create_logical_replication_slot('mine', 'pgoutput')", "select bds_service.keep_secret('tokens', 'x') from bds.secrets",
    "create view api.mine as select 1", "create function bds.mine() returns int language sql return 1",
]  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_what_would_lead_out_of_the_database_or_above_it_is_refused(
    as_role: Callable[[str], psycopg.Connection], role: str
) -> None:
    for statement in FORBIDDEN:
        with pytest.raises(psycopg.Error) as refused:
            as_role(role).execute(statement.encode())
            pytest.fail(f"{role} may {statement}")
        # 0A000, 55000, 58P01: the server has no such extension, or is not set up for it
        assert refused.value.sqlstate in ("42501", "0A000", "55000", "58P01", "42704"), (role, statement, str(refused.value))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_becomes_no_other(as_role: Callable[[str], psycopg.Connection], role: str) -> None:
    for other in (*ROLES, OWNER):
        if other != role and (other, role) not in MEMBERS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                as_role(role).execute(f"set role {other}".encode())


@pytest.mark.slow
def test_an_import_analyzes_what_it_has_filled_though_its_session_may_not(
    operator: Operator, as_role: Callable[[str], psycopg.Connection]
) -> None:
    operator.company("filled")
    writer = as_role("bds_writer")
    with writer.transaction():
        writer.execute("select bds.set_context('filled')")
        row = writer.execute(
            "with i as materialized (select bds.import_begin('filled') as id) select id, bds.import_stage('filled', id, 'units') from i"
        ).fetchone()
        assert row is not None
        writer.execute(f"insert into {row[1]} (code, name) select n::text, 'x' from generate_series(1, 10001) n".encode())
        writer.execute("select bds.import_run('filled', %s)", (row[0],))
    assert operator.rows("select reltuples >= 10001 from pg_class where oid = 'data.units'::regclass") == [(True,)]
