"""From a dataset to finished files."""
