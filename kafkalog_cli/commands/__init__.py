"""One module per command: its options, the library function that answers, the output."""
