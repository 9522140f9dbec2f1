"""Reasons to skip tests that the last line of a run names."""

from __future__ import annotations

__all__ = ["NO_BROWSER"]

NO_BROWSER = "skipped for lack of a browser"
