"""From what a user names to shards that can be opened."""
