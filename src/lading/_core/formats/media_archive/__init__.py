"""Documents with zstd media archives."""
