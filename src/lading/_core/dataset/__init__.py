"""Datasets: sources, open shards, random access, writing."""
