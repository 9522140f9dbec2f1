"""Several formats' rows as one view."""
