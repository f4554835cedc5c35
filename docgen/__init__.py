"""Writes the generated parts of `docs/`: `python -m docgen`, or `make docs`."""
