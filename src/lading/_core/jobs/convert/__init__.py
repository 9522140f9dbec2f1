"""Conversions: plan, tasks, commit."""
