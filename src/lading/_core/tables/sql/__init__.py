"""SQL over tables, run by DuckDB."""
