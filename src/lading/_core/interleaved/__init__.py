"""Interleaved samples: the rows of several formats as one view."""
