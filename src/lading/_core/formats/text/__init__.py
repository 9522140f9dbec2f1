"""Plain text: a line, or a file, a sample; read-only."""
