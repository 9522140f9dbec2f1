"""Arrow IPC shards."""
