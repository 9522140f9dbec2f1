"""Parquet shards."""
