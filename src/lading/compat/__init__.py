"""Readers under the names that users of other libraries know."""
