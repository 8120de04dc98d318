"""Reverse mappings: writers that turn stored records into a mapper's source format."""
