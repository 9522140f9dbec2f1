"""Compare what a reader gave with the descriptions in a golden case's `expected.json`.

A description has a `kind` and what is needed to tell equal from unequal: digests of canonical bytes, exact bits of
floats, decimal text of integers (`tests/golden/README.md`). All functions give the differences as text, none if equal.
"""

from __future__ import annotations

import decimal
import hashlib
import io
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from PIL import Image

Want = Mapping[str, Any]

_RAW = (bytes, bytearray, memoryview)
_NO_SAMPLE = object()


def compare(want: Want, got: Any, where: str = "value") -> list[str]:
    """Return differences between a description and a value, which may be Python's, numpy's or a Pillow image."""
    kind = want["kind"]
    if kind == "any":
        return []
    if kind == "null":
        return [] if got is None else [f"{where}: expected null, got {_show(got)}"]
    if got is None:
        return [] if _stands_for_null(want) else [f"{where}: expected {kind}, got None"]
    if kind == "list":
        return _compare_list(want["items"], got, where)
    if kind == "struct":
        return _compare_struct(want["fields"], got, where)
    problem = _KINDS[kind](want, got)
    return [f"{where}: {problem}"] if problem else []


def compare_sample(want: Mapping[str, Want], got: Mapping[str, Any], where: str = "sample") -> list[str]:
    """Return differences between an expected sample and a read one; additional fields named `__…` are allowed."""
    extra = sorted(field for field in got if field not in want and not field.startswith("__"))
    unexpected = [f"{where}: unexpected fields {extra}"] if extra else []
    return unexpected + _compare_struct(want, got, where)


def compare_samples(want: Sequence[Mapping[str, Want]], got: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return differences between the expected samples and the read ones, in order; at most ten."""
    problems: list[str] = []
    for i, (expected, sample) in enumerate(zip_longest(want, got, fillvalue=_NO_SAMPLE)):
        if expected is _NO_SAMPLE or sample is _NO_SAMPLE:
            missing = "read, but not expected" if expected is _NO_SAMPLE else "expected, but not read"
            return [*problems, f"sample {i}: {missing} ({len(want)} expected)"][:10]
        problems += compare_sample(expected, sample, f"sample {i}")
    return problems[:10]


def _stands_for_null(want: Want) -> bool:
    return want.get("canonical") == "null" or (want["kind"] == "pickle" and want["value"]["kind"] == "null")


def _compare_list(items: Sequence[Want], got: Any, where: str) -> list[str]:
    values = got.tolist() if isinstance(got, np.ndarray) else list(got)
    if len(values) != len(items):
        return [f"{where}: {len(values)} items, expected {len(items)}"]
    pairs = zip(items, values, strict=True)
    return [text for i, (item, value) in enumerate(pairs) for text in compare(item, value, f"{where}[{i}]")]


def _compare_struct(fields: Mapping[str, Want], got: Mapping[str, Any], where: str) -> list[str]:
    return [text for name, want in fields.items() for text in compare(want, got.get(name), f"{where}.{name}")]


def _compare_json(want: Want, got: Any) -> str:
    value = got
    if isinstance(got, (str, bytes)) and not want.get("canonical", "").startswith('"'):
        value = json.loads(got)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return _digest(want, text.encode("utf-8", "surrogatepass"), text)


def _compare_encoded(want: Want, got: Any) -> str:
    if isinstance(got, _RAW):
        if _sha256(got) == want["sha256"]:
            return ""
        if want.get("reencoded"):
            return _compare_encoded(want, Image.open(io.BytesIO(got)))
        return f"{len(got)} bytes differ from the {want['length']} expected"
    if isinstance(got, Mapping):  # the struct<bytes, path> of Hugging Face's features
        return _compare_encoded(want, got["bytes"])
    return _compare_image(want["image"], got, ("mode", "size", "pixels_sha256"))


def _compare_image(
    want: Want, got: Any, parts: Sequence[str] = ("mode", "size", "pixels_sha256", "palette_sha256")
) -> str:
    if not isinstance(got, Image.Image):
        return f"expected an image, got {_show(got)}"
    have = {"mode": got.mode, "size": list(got.size), "pixels_sha256": _sha256(got.tobytes())}
    if got.mode == "P":
        have["palette_sha256"] = _sha256(bytes(got.getpalette("RGB") or b""))
    # Raw pixels have no palette, whatever their mode.
    told = [part for part in parts if part != "palette_sha256" or part in want]
    wrong = [f"{part} {have.get(part)}, expected {want[part]}" for part in told if have.get(part) != want[part]]
    return "; ".join(wrong)


def _compare_pickle(want: Want, got: Any) -> str:
    if isinstance(got, _RAW):
        return _digest(want, got, "pickle")
    return "; ".join(compare(want["value"], got, "unpickled"))


def _compare_bool(want: Want, got: Any) -> str:
    same = isinstance(got, (bool, np.bool_)) and bool(got) == want["value"]
    return "" if same else f"{_show(got)}, expected {want['value']}"


def _compare_int(want: Want, got: Any) -> str:
    same = isinstance(got, (int, np.integer)) and not isinstance(got, bool) and str(int(got)) == want["value"]
    return "" if same else f"{_show(got)}, expected {want['value']}"


def _compare_float(want: Want, got: Any) -> str:
    if not isinstance(got, (float, np.floating)):
        return f"expected a float, got {_show(got)}"
    bits = "7ff8000000000000" if math.isnan(got) else struct.pack(">d", float(got)).hex()
    return "" if bits == want["bits"] else f"{got!r}, expected {want['value']}"


def _compare_decimal(want: Want, got: Any) -> str:
    same = isinstance(got, decimal.Decimal) and str(got) == want["value"]
    return "" if same else f"{_show(got)}, expected Decimal {want['value']}"


def _compare_str(want: Want, got: Any) -> str:
    if not isinstance(got, str):
        return f"expected a str, got {_show(got)}"
    return _digest(want, got.encode("utf-8", "surrogatepass"), got)


def _compare_bytes(want: Want, got: Any) -> str:
    return _digest(want, got, bytes(got)) if isinstance(got, _RAW) else f"expected bytes, got {_show(got)}"


def _compare_ndarray(want: Want, got: Any) -> str:
    array = np.asarray(got)
    have = [array.dtype.newbyteorder("=").name, list(array.shape)]
    if have != [want["dtype"], want["shape"]]:
        return f"array of {have}, expected {want['dtype']} {want['shape']}"
    return _digest(want, array.astype(array.dtype.newbyteorder("<"), order="C").tobytes(), array)


def _compare_datetime(want: Want, got: Any) -> str:
    return "" if got.isoformat() == want["value"] else f"{_show(got)}, expected {want['value']}"


def _digest(want: Want, data: bytes | bytearray | memoryview, value: object) -> str:
    if _sha256(data) == want["sha256"]:
        return ""
    expected = want.get("value", want.get("canonical", want.get("hex", want["sha256"])))
    return f"{_show(value)} ({len(data)} bytes), expected {str(expected)[:80]} ({want['length']} bytes)"


def _sha256(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _show(value: object) -> str:
    return f"{type(value).__name__} {repr(value)[:80]}"


_KINDS: dict[str, Callable[[Want, Any], str]] = {
    "bool": _compare_bool,
    "bytes": _compare_bytes,
    "datetime": _compare_datetime,
    "decimal": _compare_decimal,
    "encoded": _compare_encoded,
    "float": _compare_float,
    "image": _compare_image,
    "int": _compare_int,
    "json": _compare_json,
    "ndarray": _compare_ndarray,
    "nonnull": lambda _want, _got: "",
    "pickle": _compare_pickle,
    "str": _compare_str,
}
