"""Whole conversions, verifications, digests and comparisons."""
