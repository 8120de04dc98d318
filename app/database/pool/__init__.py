"""The connections of a process of the service to one server.

pools         pools of connections that act as one role
session       a pooled connection, and what is known of its session
lending       connections that a pool has lent for small reads
standing      a connection that runs small reads
direct        libpq itself, one statement at a time
writers       sessions for small imports
listening     a connection that listens for notifications
pulse         the health check of a database, which restores the pools after an outage
pooler        checks that the configuration names the pooler in front of the database
"""
