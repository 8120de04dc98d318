"""The only package that opens connections: pools, LISTEN, the catalog, migrations, the embedded server."""
