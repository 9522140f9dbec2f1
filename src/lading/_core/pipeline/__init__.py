"""The pipeline: batches from open shards to finished shards."""
