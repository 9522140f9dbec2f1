"""A kit for those who add formats and stores."""
