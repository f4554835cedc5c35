"""Kernels: when they pay, how they are compiled, where they are kept, how they are loaded."""
