"""Fixtures of the tests of jobs."""

from __future__ import annotations

import pytest

from lading._core.jobs.convert import schedule


@pytest.fixture(autouse=True)
def workers_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers begin at once, however little there is for them: what tests have is done by one process otherwise."""
    monkeypatch.setattr(schedule, "_QUICK_BYTES", 0)
