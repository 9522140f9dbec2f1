"""The manifest of a dataset: shards, schema, counts, digests; its files; the commit."""
