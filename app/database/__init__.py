"""The only package that opens database connections.

What a process of the service uses, the upper ones first:
    database      its access to all places: companies, the catalog, notifications
    servers       one place, its primary and replicas; which company is where
    pool          pools of connections to one server
    catalog       entities, fields and navigations, read from the registry
    generations   whether the log still has what a client knows of it
    past          sessions that see a company as of a version
    listing       pages of lists
    caller        the sender of the HTTP request, which transactions of administration name

What commands and operators use:
    connections   connections outside the pools, for imports, too
    embedded      the embedded PostgreSQL
    roles         what must be before the first migration: encoding, owner, roles, who may connect
    migrate       brings a database up to sql/
    units         what is in sql/: migrations, folders of functions
    applying      runs one of them
    waiting       tries again what another session's lock was in the way of
    schema        whether a schema is that of this program
"""
