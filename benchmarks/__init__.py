"""Benchmarks: whole processes, ours and Kafka's tool in turn on the same files.

`python -m benchmarks` runs them; `rows` says what is measured and what is wanted.
"""
