"""Stores of files: local disk, memory, every fsspec backend, and stores that wrap other stores."""
