"""Logs as text, formatted by kernels: the lines of `kafka-dump-log.sh`, JSON, CSV."""
