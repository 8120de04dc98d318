"""Readers that turn XML, JSON and CSV into records of an import document, as the bytes arrive."""
