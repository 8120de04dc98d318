"""The mapper's configuration language: its grammar, its checks, its functions and paths."""
