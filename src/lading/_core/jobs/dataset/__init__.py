"""Verbs on whole datasets: index, merge, export, demo."""
