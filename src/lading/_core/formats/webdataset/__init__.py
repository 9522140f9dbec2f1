"""WebDataset: tar shards."""
