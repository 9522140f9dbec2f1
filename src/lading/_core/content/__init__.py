"""Content of samples: canonical form, digests, conditions, image headers."""
