"""Implementation of `lading.media`."""
