"""Fixtures of the tests from end to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostile import Judge


@pytest.fixture(scope="module")
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Says what is wrong with how the module's `read_case` takes a case. It reads each as often as `READS` says."""
    times = getattr(request.module, "READS", 1)
    with Judge(request.path, tmp_path_factory.mktemp("hostile"), times=times) as judge:
        yield judge
