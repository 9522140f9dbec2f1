"""Processes that lading starts: how they begin and end, and how values reach them."""
