"""Datasets of Ray Data, read and written."""
