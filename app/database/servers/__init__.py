"""The servers of a process of the service: which company is where, and where a request reads.

place         one server: a pool for each role, the health check, the webhook worker's and the followers' connections
directory     where companies live, as the process knows it
reads         where a request reads, the replica or the primary, and what happens if that fails
replicas      a read replica: whether it serves, and how far it is behind
bell          NOTIFY after commits
"""
