"""The mapper language: parser, checks against the catalog, functions, and paths of each source format."""
