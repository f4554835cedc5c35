"""Writes what the pages of `docs/` show of the code: `python -m docgen`, or `make docs`."""
