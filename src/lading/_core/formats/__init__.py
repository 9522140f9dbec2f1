"""Shard formats, one package each."""
