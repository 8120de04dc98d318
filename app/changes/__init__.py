"""Change detection: rows by `updatedAt`, the change log."""
