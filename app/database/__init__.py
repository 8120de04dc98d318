"""The only package that opens database connections.

Modules:
    database      a process's access: the places of companies, the catalog, notifications
    place         one server: a pool for each role, the health check, the webhook worker's and the followers' connections
    directory     where companies live
    places        administration of places, for commands
    move          moves a company to another place
    pools         pools of connections that act as one role
    pulse         the health check of a database, which restores the pools after an outage
    pooler        checks that the configuration names the pooler in front of the database
    connections   connections outside the pools, for commands and imports
    catalog       entities, fields and navigations, read from the registry
    listing       pages of lists
    migrate       applies migrations, and functions that have changed
    embedded      the embedded PostgreSQL
"""
