"""One log's bytes in order: batches, columns, text; what is sound of them."""
