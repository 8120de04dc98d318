"""Feeds: one huge document of desired values comes in, is cut into records, staged by COPY, and handed to the database."""
