"""The `bds` command: what an operator does at a terminal."""
