"""The HTTP layer: authenticates, parses three small languages, compiles them to SQL, and moves bytes."""
