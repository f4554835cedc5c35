"""Runs of commands that change a log directory: its lock, a journal, a backup, the way back."""
