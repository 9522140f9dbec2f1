"""Verify, digest, diff and doctor: is a dataset what it says."""
