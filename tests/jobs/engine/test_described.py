"""A function is described by its code and by all that it names: a change is noticed, and another process is not."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

import lading
from lading._core.jobs.engine.described import described

_HELPERS = """
LIMIT = 3
def clean(text):
    return text.strip()
"""
_MODULE = """
import re
from datetime import date
from functools import partial
import described_helpers
from described_helpers import clean as cleaned

TABLE = {"a": 1}
NAMES = ["x"]
KNOWN = {"p", "q"}
PATTERN = re.compile("a+")
SINCE = date(2020, 1, 1)

class Base:
    def inherited(self):
        return 1

class Slotted(Base):
    __slots__ = ("size",)
    def __init__(self, size):
        self.size = size
    def own(self):
        return 2
    @staticmethod
    def fixed():
        return 3
    @classmethod
    def made(cls):
        return 4
    @property
    def shown(self):
        return 5

SLOTTED = Slotted(6)

def function(sample):
    told = [TABLE, NAMES, KNOWN, PATTERN, SINCE, SLOTTED.shown, cleaned("")]
    return told, described_helpers.clean(""), described_helpers.LIMIT
"""
_CHANGES = [
    ('{"a": 1}', '{"a": 2}'), ('["x"]', '["y"]'), ('{"p", "q"}', '{"p", "r"}'), ('"a+"', '"b+"'), ("2020", "2021"),
    ("return 1", "return 0"), ("return 2", "return 0"), ("return 3", "return 0"), ("return 4", "return 0"),
    ("return 5", "return 0"), ("Slotted(6)", "Slotted(7)"), ("LIMIT = 3", "LIMIT = 4"), ("strip", "rstrip"),
]  # fmt: skip


def of_modules(old: str = "", new: str = "") -> Any:
    """Describe the function of the modules above, after a change."""
    made = {}
    for name, text in (("described_helpers", _HELPERS), ("described_main", _MODULE)):
        sys.modules[name] = made[name] = ModuleType(name)
        exec(text.replace(old, new) if old else text, vars(made[name]))
    try:
        return described(made["described_main"].function)
    finally:
        for name in made:
            del sys.modules[name]


@pytest.mark.parametrize("change", _CHANGES, ids=" ".join)
def test_a_change_of_what_a_function_names_is_noticed(change: tuple[str, str]) -> None:
    assert of_modules(*change) != of_modules()


@pytest.mark.mechanism("fingerprints in another process")
def test_another_process_describes_the_same(tmp_path: Path) -> None:
    for name, text in (("described_helpers", _HELPERS), ("described_main", _MODULE)):
        (tmp_path / f"{name}.py").write_text(text)
    program = (
        "import described_main, lading._core.jobs.engine.described as d; print(d.described(described_main.function))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True,
            env={"PYTHONPATH": f"{tmp_path}:{Path(lading.__file__).parents[1]}", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {f"{of_modules()}\n"}


_PAIRS: list[Callable[[int], Any]] = [
    lambda n: re.compile("a" * n),
    lambda n: dt.date(2020, 1, n),
    lambda n: dt.datetime(2020, 1, n, tzinfo=dt.UTC),
    Decimal,
    lambda n: pa.array([n]),
    lambda n: pa.chunked_array([[n]]),
    lambda n: pa.record_batch({"a": [n]}),
    pa.scalar,
    lambda n: np.array([str(n), None], object),
    range,
    lambda n: {"a": 1}.get if n == 1 else {"a": 2}.get,
    lambda n: partial(int, base=n + 1),
    lambda n: {(n, n): 0},
]


@pytest.mark.parametrize("make", _PAIRS)
def test_values_are_told_by_their_content(make: Callable[[int], Any]) -> None:
    assert described(make(1)) == described(make(1))
    assert described(make(1)) != described(make(2))
    orjson.dumps(described(make(1)))


def test_cached_functions_are_told_by_what_they_call() -> None:
    first, again, second = (lru_cache(eval(text)) for text in ("lambda: 1", "lambda: 1", "lambda: 2"))
    assert described(first) == described(again) != described(second)


class Caption:
    """What calls a service with a token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, sample: dict[str, Any], api_key: str = "") -> dict[str, Any]:
        return {"caption": f"{self.token}{api_key}"}

    def method(self, sample: dict[str, Any]) -> dict[str, Any]:
        return self(sample)


@dataclass(frozen=True)
class Service:
    """The same, as a dataclass."""

    token: str

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"caption": self.token}


@pytest.mark.parametrize(
    "make",
    [
        Caption, Service, lambda secret: Caption(secret).method, lambda secret: partial(Caption("").method, secret),
        lambda secret: partial(Caption(""), api_key=secret), lambda secret: lambda _: secret,
        lambda secret: secret.strip,
    ],
    ids=["object", "dataclass", "method", "partial", "keyword", "closure", "builtin"],
)  # fmt: skip
def test_what_functions_hold_may_be_secret(make: Callable[[str], Any]) -> None:
    told = [described({"function": make(secret)}) for secret in ("sk-12345", "sk-54321", "sk-12345")]
    assert "sk-" not in str(told)
    assert told[0] == told[2] != told[1]


def test_a_long_chain_of_objects_and_a_lock_are_told_by_their_class() -> None:
    chain = None
    for _ in range(5000):
        chain = Caption(chain)  # type: ignore[arg-type] # any value will do
    assert described(chain) == described(chain)
    assert described(threading.Lock()) == described(threading.Lock())
