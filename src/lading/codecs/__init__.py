"""Bytes to bytes: compression, one file each."""
