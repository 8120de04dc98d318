"""The benchmarks: what the service costs above the least that PostgreSQL needs for the same work (`python -m bench`)."""
