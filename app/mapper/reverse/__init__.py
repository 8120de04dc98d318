"""Writers that turn stored rows, as records of an import document, into a mapper's source format."""
