"""Values of fields and samples, as Arrow and as Python."""
