"""CSV and TSV shards."""
