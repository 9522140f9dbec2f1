"""A plugin of pytest (`-p oldest_versions`): the tests with the versions of `tests/oldest.txt`.

What needs newer ones is left out, with its reason.
"""

from __future__ import annotations

import pytest

_NEEDS = {
    "not_unpacked_at_once[null lists]": "pyarrow 26 reads lists of fixed lists that are null",
    "test_feather_of_version_1": "newer versions of pyarrow warn of it",
    "test_types_that_do_not_fit[meta.zz == 1-meta": "newer versions of pyarrow keep the order of a dict's fields",
    "[AVIF-": "Pillow 11.3 reads AVIF",
    "test_tensors_are_dtype_shape_and_bytes": "a package starts a process where it is imported first",
}
"""Parts of the names of tests, and the reason."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs newer versions."""
    for item in items:
        for part, reason in _NEEDS.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))
