"""The soak: everything at once for a while, under faults, and a model that finds what is lost, twice, stale or wrong.

`python -m soak --seconds 60` starts a PostgreSQL and the service in a temporary folder, lets actors work against them, ends all of
it and checks. The modules: world (processes), ledger (what the actors were promised), writers, imports, readers, receiver, schema and
faults (the actors), facts and checks (what the database has, and what must hold), proof (tampering that the checks must find).
"""
