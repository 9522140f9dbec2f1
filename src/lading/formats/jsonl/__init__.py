"""JSON Lines shards."""
