"""The query languages of the service: text -> tree -> checked tree -> SQL."""
