"""What `--help` says beside the options: an overview, and for each command how it is used."""

from __future__ import annotations

OVERVIEW = """\
to begin:
  bds demo --serve                       a demo company to look at
  bds migrate                            make or update the tables of a database
  bds company create acme                a company
  bds key create --company acme          a key for a program
  bds serve --processes 4                serve, and deliver webhooks

Settings are environment variables BDS_* (README.md has all of them). BDS_DATABASE_URL names the database; without it a PostgreSQL
of its own is started, with its files in BDS_DATA_DIR. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 an import of which some
records failed. `bds COMMAND --help` shows the options of a command and how it is used."""

EXAMPLES = {
    "serve": """\
  bds serve --host 0.0.0.0 --processes 4       four HTTP processes on one address, and one that delivers webhooks
  bds serve --no-worker                        HTTP alone
SIGTERM: accept no more, let what runs end (30 s), exit. With --processes a process that dies is started again, and SIGTERM to one
of them replaces it. Each has connections of its own: README.md, "Operating it", has the sum.
/healthz, /readyz and /metrics are for whoever watches.""",
    "worker": "  bds worker                                   on as many machines as you like, beside `bds serve --no-worker`",
    "migrate": """\
  BDS_DATABASE_URL=postgresql://owner@db/bds bds migrate
May be run at any time, also by several at once; has nothing to do the second time. Run it after an update of the program and after
restoring a backup.""",
    "company create": "  bds company create acme --tenant acme-group",
    "key create": """\
  bds key create --company acme --scope read --name power-bi --expires 90d
  KEY=$(bds key create --company acme)""",
    "key list": "  bds key list                                 ids, what they open, when they were used last; never a key",
    "key revoke": "  bds key revoke 4f0c2a6e-...                  in force in every process at once",
    "user create": """\
  bds user create anna@example.com --company acme < /dev/null       makes a password and prints it
  echo "$PASSWORD" | bds user create anna@example.com --company acme --company beta""",
    "user password": "  bds user password anna@example.com < /dev/null    signs her out everywhere",
    "user list": "  bds user list",
    "user delete": "  bds user delete anna@example.com",
    "explain": "  bds explain '/api/odata/demo/products?$filter=price gt 100&$top=5'",
    "dsn": '  psql "$(bds dsn)"\n  pg_dump --format=custom --dbname "$(bds dsn)" --file bds.dump',
    "stop": "  bds stop                                     what `bds` has started by itself, in BDS_DATA_DIR; no other server",
    "import": """\
  bds import feed.json --company acme --dry-run
  bds import catalog.xml --company acme --mapper catalog
  zcat feed.json.gz | bds import - --company acme --json""",
    "export": """\
  bds export products --company acme --format csv --select code,name,price --orderby 'price desc' --top 10
  bds export orders --company acme --format excel --filter 'total gt 1000' --output orders.xlsx""",
    "demo": "  bds demo --serve --port 8080                 as `make run` does",
}
