"""A plugin of pytest (`-p older_pyarrow`): the tests under an older pyarrow than the one they are written with.

What needs more than the installed version is left out, with its reason.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

_NEEDS = {
    "not_unpacked_at_once[null lists]": (26, "reads lists of fixed lists that are null"),
    "test_counts_of_rows_that_differ": (26, "counts the rows of damaged footers otherwise"),
}
"""Parts of the names of tests, the first version of pyarrow under which they pass, and what that version has."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a newer pyarrow."""
    version = int(pa.__version__.partition(".")[0])
    for item in items:
        for part, (least, reason) in _NEEDS.items():
            if version < least and part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"pyarrow {least} {reason}"))
