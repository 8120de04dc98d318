"""OData and the filter language, from text to SQL: nodes, a checked tree, one query, statements."""
