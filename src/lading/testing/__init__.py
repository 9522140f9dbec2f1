"""A kit for those who add formats and stores, and a check of exact resume for pipelines of your own.

Needs pytest; `lading.testing.strategies` needs Hypothesis.
"""

import pytest

# So that a failing assertion of the kit shows its values; it must be said before the modules are loaded.
pytest.register_assert_rewrite("lading.testing.store", "lading.testing.format")

from lading._core.storage.wrappers import CountingStore  # noqa: E402 - see above
from lading.testing.format import FormatTests  # noqa: E402 - see above
from lading.testing.resume import assert_exact_resume  # noqa: E402 - see above
from lading.testing.store import StoreTests  # noqa: E402 - see above

__all__ = ["CountingStore", "FormatTests", "StoreTests", "assert_exact_resume"]
