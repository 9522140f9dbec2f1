"""Datasets in the browser: a small server, and the page that it shows."""
