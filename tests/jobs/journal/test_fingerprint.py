"""A function is its name, bytecode, defaults and closure: a change is noticed, and another process is not."""

from __future__ import annotations

import datetime as dt
import io
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
from lading._core.jobs.journal.fingerprint import plain_facts

_MODULE = """
import re

LIMIT = 3

class Caption:
    def __init__(self, size):
        self.size = size
    def shown(self):
        return 5
    @staticmethod
    def cut(text):
        return text[:20]
    @property
    def longest(self):
        return 30
    def __call__(self, sample):
        return self.shown(), self.cut(sample), self.longest

def made(known=frozenset({"p", "q"}), *, pattern=re.compile("a+")):
    held = ["x", Caption(6)]
    def function(sample, factor=1, *, word="y"):
        if sample in {"k", "l"}:
            return made
        return [factor, word, held, known, pattern, LIMIT, (lambda: 7)(), function]
    return function
"""
_CHANGES = [
    ('["x"', '["z"'), ('"q"}', '"r"}'), ('"a+"', '"b+"'), ("factor=1", "factor=2"), ('word="y"', 'word="z"'),
    ("return 5", "return 0"), ("text[:20]", "text[:21]"), ("return 30", "return 31"),
    ("Caption(6)", "Caption(7)"), ("(lambda: 7)", "(lambda: 8)"), ('"l"}', '"m"}'),
]  # fmt: skip


def plain(value: Any) -> Any:
    unknown: list[str] = []
    found = plain_facts(value, unknown)
    assert unknown == []
    return found


def of_module(old: str = "", new: str = "") -> Any:
    """The facts of the function of the module above, after a change."""
    sys.modules["told_main"] = module = ModuleType("told_main")
    exec(_MODULE.replace(old, new) if old else _MODULE, vars(module))
    try:
        return plain(module.made())
    finally:
        del sys.modules["told_main"]


@pytest.mark.parametrize("change", _CHANGES, ids=" ".join)
def test_a_change_of_a_function_and_of_what_it_holds_is_noticed(change: tuple[str, str]) -> None:
    assert of_module(*change) != of_module()


def test_what_a_function_names_in_its_module_is_no_part_of_it() -> None:
    assert of_module("LIMIT = 3", "LIMIT = 4") == of_module()


@pytest.mark.mechanism("fingerprints in another process")
def test_another_process_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "told_main.py").write_text(_MODULE)
    program = "import told_main, lading._core.jobs.journal.fingerprint as f; print(f.plain_facts(told_main.made(), []))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True,
            env={"PYTHONPATH": f"{tmp_path}:{Path(lading.__file__).parents[1]}", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {f"{of_module()}\n"}


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
    assert plain(make(1)) == plain(make(1))
    assert plain(make(1)) != plain(make(2))
    orjson.dumps(plain(make(1)))


def test_cached_functions_are_told_by_what_they_call() -> None:
    first, again, second = (lru_cache(eval(text)) for text in ("lambda: 1", "lambda: 1", "lambda: 2"))
    assert plain(first) == plain(again) != plain(second)


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
    told = [plain({"function": make(secret)}) for secret in ("sk-12345", "sk-54321", "sk-12345")]
    assert "sk-" not in str(told)
    assert told[0] == told[2] != told[1]


class Slotted(Caption):
    """What holds more than its attributes."""

    __slots__ = ("model",)

    def __call__(self, sample: dict[str, Any], api_key: str = "") -> dict[str, Any]:
        return {"caption": f"{self.token}{api_key}"}


@pytest.mark.parametrize(
    "value, name",
    [
        (threading.Lock(), "_thread:lock"), (Caption(threading.Lock()), "_thread:lock"),  # type: ignore[arg-type]
        (partial(print, file=io.StringIO()), "StringIO"), (Slotted("x"), "Slotted"), (iter([1]), "list_iterator"),
    ],
    ids=["lock", "in an object", "in a partial", "slots", "iterator"],
)  # fmt: skip
def test_values_of_other_classes_are_unknown(value: object, name: str) -> None:
    unknown: list[str] = []
    plain_facts({"function": value}, unknown)
    assert [name in one for one in unknown] == [True]


def test_a_long_chain_of_objects_is_unknown() -> None:
    chain = None
    for _ in range(5000):
        chain = Caption(chain)  # type: ignore[arg-type] # any value will do
    unknown: list[str] = []
    assert plain_facts(chain, unknown) == plain_facts(chain, [])
    assert len(unknown) == 1


def test_values_that_others_share_are_walked_once() -> None:
    shared = Caption("x")
    for _ in range(30):
        shared = Caption((shared, shared))  # type: ignore[arg-type] # any value will do
    assert plain(shared) == plain(shared)
