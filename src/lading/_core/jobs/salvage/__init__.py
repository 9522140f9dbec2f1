"""Salvage and repair of damaged datasets."""
