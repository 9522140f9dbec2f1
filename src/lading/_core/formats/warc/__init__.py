"""Web archives (WARC): a record a sample."""
