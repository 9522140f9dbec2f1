"""Arrow: types, casts, schema alignment, byte ranges, references and views."""
