"""Implementation of `lading.features`."""
