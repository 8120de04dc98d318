"""The only package that opens database connections.

What a process of the service uses:
    database      its access to all places: companies, the catalog, notifications
    place         one server: a pool for each role, the health check, the webhook worker's and the followers' connections
    directory     where companies live, as the process knows it
    replicas      chooses the replica, or the primary, from which a request reads
    pools         pools of connections that act as one role
    session       a pooled connection, and what is known of its session
    lending       connections that a pool has lent for small reads
    standing      a connection that runs small reads
    direct        libpq itself, one statement at a time
    writers       sessions for small imports
    pulse         the health check of a database, which restores the pools after an outage
    bell          NOTIFY after commits
    pooler        checks that the configuration names the pooler in front of the database
    catalog       entities, fields and navigations, read from the registry
    past          sessions that see a company as of a version
    listing       pages of lists
    caller        the sender of the HTTP request, which transactions of administration name

What commands and operators use:
    connections   connections outside the pools, for imports, too
    embedded      the embedded PostgreSQL
    roles         what must be before the first migration: encoding, owner, roles, who may connect
    migrate       applies migrations, and functions that have changed
"""
