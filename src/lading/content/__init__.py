"""What samples contain: canonical form, digests, conditions, image headers."""
