"""Fixtures of the tests from end to end."""

from __future__ import annotations

import pytest

from golden_cases import Golden
from hostile import FAMILIES, judge_cases


@pytest.fixture(scope="module", params=FAMILIES)
def verdicts(
    request: pytest.FixtureRequest, golden: Golden, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """What is wrong with how the module's `read_case` took each case of a family, for all families in turn.

    Each was read once, or as often as the module's `READS` says.
    """
    cases, times = sorted(golden(request.param).iterdir()), getattr(request.module, "READS", 1)
    return judge_cases(cases, request.path, tmp_path_factory.mktemp("hostile"), times=times)
