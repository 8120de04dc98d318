"""/c: rows by `updatedAt`, and the change log."""
