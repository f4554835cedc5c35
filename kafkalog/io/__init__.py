"""Bytes in and out: files, stores, codecs, kernels, engines, and writing that survives a crash."""
