"""Loose files in folders: read-only."""
