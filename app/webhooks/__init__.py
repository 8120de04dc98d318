"""Delivering changes to hooks: the worker, and one guarded, signed attempt."""
