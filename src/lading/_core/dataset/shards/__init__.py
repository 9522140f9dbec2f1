"""Open shards and their rows: in order, by number, by digest."""
