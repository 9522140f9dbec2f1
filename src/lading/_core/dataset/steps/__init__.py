"""The steps of a dataset: small frozen values."""
