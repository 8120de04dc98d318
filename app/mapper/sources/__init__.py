"""Readers of XML, JSON and CSV that turn a source into the import document, piece by piece."""
