"""Local paths and objects of stores, read through one interface."""
