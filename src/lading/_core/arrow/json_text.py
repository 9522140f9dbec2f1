"""Read and write JSON without loss.

`orjson` is fast, and silently turns integers beyond 64 bits into floats. It refuses NaN, infinities, numbers that
overflow, lone surrogates and a byte order mark, which all occur in real data. Python's `json` keeps them. Texts go to
orjson only if both must give the same value, and otherwise to `json`.

Source: RFC 8259; the spelling of `dumps` is that of Python's `json.dumps(value, ensure_ascii=False)`, as the peers
write it.
"""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.errors import DataError, Unrepresentable

__all__ = [
    "MAX_LEVELS",
    "canonical",
    "dumps",
    "dumps_each",
    "find_repeated_name",
    "glued",
    "is_unicode",
    "joined_runs",
    "loads",
    "loads_plain",
    "refuse_too_deep",
]

MAX_LEVELS = 200
"""Maximum nesting of lists and objects: deeper JSON is refused, in reading and in writing."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1

# A text with `0` for each digit and a space for the rest. A search in it shows whether it may hold a number that orjson
# reads differently (19 digits: near 64 bits).
_SHAPE = bytes(48 if i in b"0123456789" else 32 for i in range(256))
_LONG_INTEGER = b"0" * 19

_FAR_END = re.compile(rb'"[ \t\r\n]+:')


def _numbers(value: Any) -> Any:
    """Return a number, array or tensor as Python's numbers, for an encoder. Raises TypeError for other values."""
    if hasattr(value, "__array__") and hasattr(value, "dtype") and not np.ma.is_masked(value):
        array = np.asarray(value)
        if array.dtype.kind in "biufUO" and array.dtype.char != "g":  # Python has no long doubles
            return array.tolist()
    raise TypeError(f"found {type(value).__name__} {value!r:.80}")


_PLAIN = json.JSONEncoder(ensure_ascii=False, default=_numbers)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_numbers)


def loads(data: bytes | bytearray | memoryview | str, *, base: int | None = None) -> Any:
    """Return the value of a JSON text in UTF-8. Integers of any size, NaN, infinities and lone surrogates are kept.

    A leading byte order mark is ignored. Of two equal names in one object, the last one wins.

    Args:
        data: the text.
        base: its start in its file, so that errors carry the offset in the file.

    Raises:
        DataError: the text is invalid JSON, invalid UTF-8, or nested deeper than `MAX_LEVELS`.
    """
    text = _as_bytes(data)
    refuse_too_deep(text, base)
    if _LONG_INTEGER not in text.translate(_SHAPE):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # Python's json returns the value that orjson refuses, or the error with its place
    return _loads_slowly(text, base)


def loads_plain(texts: Sequence[bytes]) -> list[Any] | None:
    """Return the values of many texts, if orjson and Python's `json` agree; None if one of them needs `loads`.

    Then all integers fit into 64 bits, and no text holds lone surrogates. 4 MB of documents take 6 ms.
    """
    if _LONG_INTEGER in b" ".join(texts).translate(_SHAPE) or any(map(_is_too_deep, texts)):
        return None
    # Python searches for cycles every few hundred new objects; there are none, and it takes two thirds of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        return list(map(orjson.loads, texts))
    except orjson.JSONDecodeError:
        return None
    finally:
        if collects:
            gc.enable()


def is_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode: JSON may hold lone surrogates, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_repeated_name(texts: Sequence[bytes], values: Sequence[Any]) -> tuple[int, str] | None:
    """Return the place of the first text with an object that repeats a name, and the name; None if there is none.

    Args:
        texts: JSON texts.
        values: their parsed values.
    """
    # If there are as many names as ends of names, none was lost. Otherwise a string may look like the end of a name.
    if _most_names(b"\n".join(texts)) == _count_names(values):
        return None
    for number, (text, value) in enumerate(zip(texts, values, strict=True)):
        if _most_names(text) != _count_names([value]):
            repeated = _repeated_name(text)
            if repeated is not None:
                return number, repeated
    return None


def _most_names(text: bytes) -> int:
    """Return an upper bound of the number of names in the objects of a text."""
    codes = np.frombuffer(text, np.uint8)
    colons = codes[1:] == ord(":")
    # A name ends with a quote and a colon. A quote after one backslash is inside a string.
    near = np.flatnonzero(colons & (codes[:-1] == ord('"')))
    near = near[near >= len('\\"')]
    in_string = (codes[near - 1] == ord("\\")) & (codes[near - 2] != ord("\\"))
    far = len(_FAR_END.findall(text)) if bool((colons & (codes[:-1] <= ord(" "))).any()) else 0
    return len(near) - int(np.count_nonzero(in_string)) + far


def _count_names(values: Sequence[Any]) -> int:
    """Return how many names the objects in these values hold, at any depth."""
    total, level = 0, list(values)
    while level:
        objects = [value for value in level if type(value) is dict]
        total += sum(map(len, objects))
        inside = [value for one in objects for value in one.values() if type(value) in _NESTED]
        level = inside + [value for one in level if type(one) is list for value in one if type(value) in _NESTED]
    return total


_NESTED = frozenset({dict, list})


def _repeated_name(text: bytes) -> str | None:
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs) and not found:
            found.append(Counter(name for name, _ in pairs).most_common(1)[0][0])
        return made

    json.loads(text.decode("utf-8-sig", "surrogatepass"), object_pairs_hook=look)
    return found[0] if found else None


def _may_repeat(value: Any) -> bool:
    """Return whether two keys of one dict may become the same text: not if all are of one plain type."""
    level = [] if type(value) in _NO_KEYS else [value]
    while level:
        dicts = [one for one in level if type(one) is dict]
        lists = [one for one in level if type(one) is list or type(one) is tuple]
        kinds = {frozenset(map(type, keys)) for keys in dicts if len(keys) > 1}
        if len(dicts) + len(lists) < len(level) or not kinds <= _ONE_TYPE:
            return True
        level = [one for keys in dicts for one in keys.values() if type(one) not in _NO_KEYS]
        level += [one for inside in lists for one in inside if type(one) not in _NO_KEYS]
    return False


_NO_KEYS = frozenset({str, int, float, bool, type(None)})
_ONE_TYPE = {frozenset({str}), frozenset({int}), frozenset({bool})}
"""Key types whose different keys have different texts; a float NaN may occur several times."""


def dumps(value: Any) -> str:
    """Return the JSON text of a value, spelled as Python's `json.dumps` does.

    It has `", "` and `": "`, and keeps non-ASCII. Lone surrogates are escaped, so that the text is always valid UTF-8.
    Keys that are numbers, bools or None become texts, as in `json.dumps`. Numbers of numpy become numbers, arrays and
    tensors of numbers become lists.

    Raises:
        Unrepresentable: the value is another than these, a dict, list, str, int, float, bool or None, or it is nested
            too deeply; two keys of one dict become the same text.
    """
    text = _dump(_PLAIN, value)
    try:
        orjson.dumps(value)  # refuses keys that are not texts, in a tenth of the time
    except TypeError:
        if _may_repeat(value) and (twice := _repeated_name(text.encode())) is not None:
            raise Unrepresentable("JSON cannot hold this value: two keys become one text", found=repr(twice)) from None
    return text


def dumps_each(values: pa.Array) -> pa.LargeStringArray:
    """Return the JSON text of each value, spelled as `dumps` does; a null becomes `null`.

    8 MB of English text take 2 ms, and 15 by `dumps` one by one; in other scripts 10. It needs about four times the
    memory of the values.

    Args:
        values: texts, numbers or bools; no lists or structs.
    """
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not len(values):
        return pa.array([], pa.large_string())
    if pa.types.is_floating(kind):
        # Not by orjson: it writes `1e16` and `null` where Python writes `1e+16` and `NaN`.
        return pa.array(_PLAIN.encode(values.to_pylist())[1:-1].split(", "), pa.large_string())
    # One value a line: values hold no line ends. The comma and the indent between two values are removed.
    text = orjson.dumps(values.to_pylist(), option=orjson.OPT_INDENT_2)
    lines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    ends = np.empty(2 * len(values), np.int64)
    ends[0::2], ends[1::2] = lines[:-1] + len("\n  "), lines[1:] - len(",")
    ends[-1] = lines[-1]
    parts = pa.Array.from_buffers(pa.large_string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return parts.take(pa.array(np.arange(0, len(parts), 2)))


def glued(*parts: str | pa.LargeStringArray) -> pa.LargeStringArray:
    """Concatenate the texts of several columns, row by row; a single text repeats in every row."""
    return pc.binary_join_element_wise(*(_text(p) if isinstance(p, str) else p for p in parts), _text(""))


def joined_runs(texts: pa.LargeStringArray, bounds: NDArray[np.int64]) -> pa.LargeStringArray:
    """Return the texts of each run, joined as entries of a JSON list; those of run i are `bounds[i]:bounds[i + 1]`."""
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(bounds), texts), _text(", "))


@lru_cache(maxsize=256)
def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value.

    Keys are sorted by code point, there are no spaces, non-ASCII stays, and numbers are spelled as Python's `json`
    does. `1` and `1.0` differ; other spellings are `1e+16`, `NaN`, `Infinity`.

    Raises:
        Unrepresentable: as `dumps`.
    """
    return _dump(_CANONICAL, value)


def _as_bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    return data if isinstance(data, bytes) else bytes(data)


def _loads_slowly(text: bytes, base: int | None) -> Any:
    try:
        return json.loads(text.decode("utf-8-sig", "surrogatepass"))
    except UnicodeDecodeError as error:
        raise _broken(f"invalid UTF-8 ({error.reason})", error.start, base) from None
    except json.JSONDecodeError as error:
        mark = 3 if text.startswith(b"\xef\xbb\xbf") else 0
        at = mark + len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
        raise _broken(error.msg, at, base) from None
    except RecursionError:
        raise _too_deep(base) from None
    except ValueError as error:  # an integer of more than 4,300 digits: the interpreter's guard
        raise DataError(f"JSON holds a number that cannot be read ({error})", offset=base) from None


def _is_too_deep(text: bytes) -> bool:
    """Return whether a JSON text has more than `MAX_LEVELS` levels."""
    if text.count(b"[") + text.count(b"{") <= MAX_LEVELS:
        return False
    codes = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    return bool(np.cumsum(_STEPS[codes], dtype=np.int64).max(initial=0) > MAX_LEVELS)


def refuse_too_deep(text: bytes, base: int | None = None) -> None:
    """Raise DataError for a JSON text that is nested deeper than `MAX_LEVELS`; `base` is its start in its file."""
    if _is_too_deep(text):
        raise _too_deep(base)


def _too_deep(base: int | None) -> DataError:
    return DataError("JSON is nested too deeply", offset=base, expected=f"at most {MAX_LEVELS} levels")


def _broken(what: str, at: int, base: int | None) -> DataError:
    return DataError(f"broken JSON at byte {at} of the text: {what}", offset=None if base is None else base + at)


def _dump(encoder: json.JSONEncoder, value: Any) -> str:
    try:
        text = encoder.encode(value)
    except TypeError as error:
        raise Unrepresentable(f"JSON cannot hold this value ({error})") from None
    except (ValueError, RecursionError) as error:  # ValueError: a value that contains itself
        raise Unrepresentable(f"JSON cannot hold this value: it is nested too deeply ({error})") from None
    if _is_too_deep(text.encode("utf-8", "surrogatepass")):
        raise Unrepresentable(
            "JSON cannot hold this value: it is nested too deeply", expected=f"at most {MAX_LEVELS} levels"
        )
    if text.isascii():
        return text
    # Only lone surrogates fail to encode; Python's escape of them is JSON's.
    return text.encode("utf-8", "backslashreplace").decode()
