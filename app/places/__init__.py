"""Places beside home: what commands and administrators do with them.  The service finds places through app/database.

Modules:
    administration   adding, describing and draining places; creating and deleting companies at them
    move             moves a company to another place
    replication      the logical replication of a company's rows
    cluster          the workers of a Citus cluster as places
    rebalance        gives each worker of a cluster its share of the companies
    balance          plans which companies move so that each place has its share
    everywhere       a read-only statement over the companies of all places
    merge            how the rows of each place become its result
    dump             a company as a stream of bytes
"""
