"""Local paths and objects of stores, read through one interface."""

from kafkalog.paths import chunked as chunked  # what it opens, every reader can
