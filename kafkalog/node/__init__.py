"""Whose log, which copy, up to where, and what a start of the node makes of it."""
