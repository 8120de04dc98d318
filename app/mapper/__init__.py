"""Mappers: a supplier's XML, JSON or CSV becomes an import document, and rows go out again in the supplier's own format."""
