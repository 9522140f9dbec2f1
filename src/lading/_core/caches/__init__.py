"""Implementation of `lading.caches`."""
