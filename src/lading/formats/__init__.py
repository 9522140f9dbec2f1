"""Shard formats, one file each."""
