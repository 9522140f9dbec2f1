"""Names and behaviour of other libraries, one module a library."""
