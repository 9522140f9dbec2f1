"""Steps on batches, applied: columns, rows, functions, tables that are joined, datasets in a row."""
