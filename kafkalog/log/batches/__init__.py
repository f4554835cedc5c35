"""Batches and records, one at a time: framing, the reference decoder, selection, lookup."""
