"""Tasks of any job, and who does them."""
