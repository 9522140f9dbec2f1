"""Damage to files, drawn from a seeded random number generator: the same seed, the same damage.

said = damage_case(folder, originals, rng)      # "shard.00000.mds: 8 bytes at 24 are 2^63 − 1"
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TypeAlias

import zstandard

__all__ = ["damage_bytes", "damage_case"]

_Damage: TypeAlias = Callable[[bytearray, Random, bytes], str]
"""Changes the bytes in place, perhaps with bytes of another file; returns what it did."""

_TEXTS = (".json", ".meta", ".jsonl", ".csv", ".tsv", ".xsv", ".txt", ".yaml")
_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62,
            2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[\[\]{}:,\n]')
_TOKENS = (
    b"0", b"-1", b"1", b"1.5", b"-0.0", b"1e400", b"1e-400", b"2147483648", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" + b"0" * 400, b"NaN", b"Infinity",
    b"null", b"true", b"false", b'""', b'"x"', b'"\\u0000"', b'"\\ud800"', b'"../../x"', b'"/etc/hostname"', b'"."',
    b'"\xff\xfe"', b'"' + b"y" * 5000 + b'"', b"[]", b"{}", b"[[]]", b'{"a":{}}', b"[" * 3000, b"{", b"}", b"]", b":",
    b",", b"\n", b"\r\n", b"\x00", b"", b'"', b"\\", b"\xef\xbb\xbf", b'"int"', b'"str"', b'"jpeg"', b'"ndarray:int64"',
    b'"pkl"', b'"json"', b'"zstd"', b'"gz:9"', b'"xxh64"',
)  # fmt: skip
_TAR_FIELDS = {"name": (0, 100), "mode": (100, 8), "size": (124, 12), "type": (156, 1), "link": (157, 100),
               "magic": (257, 8), "prefix": (345, 155)}  # fmt: skip
_TAR_VALUES = (b"", b"0", b"-1", b"99999999999", b"77777777777", b"00000000001", b"\x80" + b"\xff" * 11, b"\xff" * 12,
               b"\x80" + b"\0" * 10 + b"\x01", b"../x", b"/x", b"a/b.c.d", b".x", b"\xff.jpg", b"x" * 100, b"7", b"1",
               b"2", b"5", b"L", b"x", b"g", b"S", b"K", b"pax", b"000003.json")  # fmt: skip


def damage_case(folder: Path, originals: Mapping[str, bytes], rng: Random) -> str:
    """Damage one file of a case, or the set of its files; return what was done.

    Args:
        folder: folder of the original files.
        originals: path in the folder → bytes of the files that may be damaged.
        rng: decides the damage.
    """
    name = _pick(originals, rng)
    other = rng.choice(sorted(originals))
    path = folder / name
    kind = rng.random()
    if kind < 0.02:
        path.unlink()
        return f"{name}: deleted"
    if kind < 0.04:
        path.unlink()
        path.write_bytes(originals[other])
        return f"{name}: has the bytes of {other}"
    if kind < 0.05:
        copy = path.with_name(f"{rng.choice(('0', 'x', 'zz'))}{path.name}")
        copy.write_bytes(damage_bytes(name, originals[name], rng, originals[other])[0])
        return f"{name}: once more as {copy.name}, damaged"
    data, said = damage_bytes(name, originals[name], rng, originals[other])
    path.unlink()  # a new file: maps and caches of the old file keep its contents
    path.write_bytes(data)
    if len(data) != len(originals[name]) and rng.random() < 0.6:
        said += _tell_size(folder, originals, len(originals[name]), len(data))
    return f"{name}: {said}"


def _tell_size(folder: Path, originals: Mapping[str, bytes], old: int, new: int) -> str:
    """Set the new size of a file in its index, so that the file is read."""
    told = [name for name in sorted(originals) if name.endswith(".json") and b": %d," % old in originals[name]]
    for name in told:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(originals[name].replace(b": %d," % old, b": %d," % new))
    return f", and {', '.join(told)} say so" if told else ""


def _pick(originals: Mapping[str, bytes], rng: Random) -> str:
    """Return a file, each kind of file equally often: an index is as likely as all the shards."""
    kind = rng.choice(sorted({_kind(name) for name in originals}))
    return rng.choice([name for name in sorted(originals) if _kind(name) == kind])


def _kind(name: str) -> str:
    return "".join(Path(name).suffixes[-2:]).lower()


def damage_bytes(name: str, data: bytes, rng: Random, other: bytes) -> tuple[bytes, str]:
    """Return damaged bytes of a file of this name, and what was done; half of the time inside its compression."""
    unpacked = _unpacked(name, data) if rng.random() < 0.6 else None
    if unpacked is not None:
        inner, said = damage_bytes(name.rpartition(".")[0], unpacked, rng, other)
        pack = gzip.compress if name.endswith(".gz") else zstandard.compress
        return pack(inner), f"within its compression, {said}"
    body = bytearray(data)
    said = [rng.choice(_damages_of(name, data))(body, rng, other) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return bytes(body), ", ".join(said)


def _unpacked(name: str, data: bytes) -> bytes | None:
    if name.endswith(".gz"):
        return gzip.decompress(data)
    if name.endswith((".zst", ".zstd")) and data[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return None


def _damages_of(name: str, data: bytes) -> tuple[_Damage, ...]:
    if data[257:262] == b"ustar":
        return (*_ANY, *[_tar_header] * 4, *[_token] * 4)
    return (*_ANY, *[_token] * 12) if name.endswith(_TEXTS) else (*_ANY, _number, _number, _number, _token)


def _span(body: bytearray, rng: Random) -> tuple[int, int]:
    """Return a range, mostly short, half of the time near an end of the file."""
    size = len(body)
    start = rng.choice(
        (rng.randrange(size + 1), rng.randrange(min(size, 64) + 1), size - rng.randrange(min(size, 400) + 1))
    )
    return start, min(size, start + rng.choice((1, 2, 4, 8, 16, 100, 512, 4096)))


def _flip(body: bytearray, rng: Random, other: bytes) -> str:
    where = sorted(_span(body, rng)[0] for _ in range(rng.choice((1, 1, 2, 8))))
    for at in where:
        if at < len(body):
            body[at] ^= 1 << rng.randrange(8)
    return f"bits flipped at {where}"


def _overwrite(body: bytearray, rng: Random, other: bytes) -> str:
    start, stop = _span(body, rng)
    size, at = stop - start, rng.randrange(len(other) + 1)
    new, what = rng.choice(((bytes(size), "zeros"), (b"\xff" * size, "ones"), (rng.randbytes(size), "random"),
                            (other[at : at + size], "another file's")))  # fmt: skip
    body[start : start + len(new)] = new
    return f"{len(new)} bytes at {start} are {what}"


def _cut(body: bytearray, rng: Random, other: bytes) -> str:
    start, stop = _span(body, rng)
    stop = len(body) if rng.random() < 0.5 else stop
    del body[start:stop]
    return f"{stop - start} bytes at {start} cut out"


def _insert(body: bytearray, rng: Random, other: bytes) -> str:
    start, stop = _span(body, rng)
    new = rng.choice((bytes(stop - start), rng.randbytes(stop - start), bytes(body[start:stop])))
    body[start:start] = new
    return f"{len(new)} bytes put in at {start}"


def _swap(body: bytearray, rng: Random, other: bytes) -> str:
    size = rng.choice((1, 4, 8, 64, 512))
    one, two = (rng.randrange(max(1, len(body) // size)) * size for _ in range(2))
    if abs(one - two) >= size:
        body[one : one + size], body[two : two + size] = body[two : two + size], body[one : one + size]
    return f"blocks of {size} at {one} and {two} swapped"


def _number(body: bytearray, rng: Random, other: bytes) -> str:
    """Replace a number of a fixed width, at a plausible place, by an extreme one."""
    width = rng.choice((2, 4, 8))
    start = _span(body, rng)[0] // width * width
    value = rng.choice(_NUMBERS) * rng.choice((1, 1, -1)) % (1 << 8 * width)
    new = value.to_bytes(width, rng.choice(("little", "little", "big")))
    body[start : start + width] = new
    return f"{width} bytes at {start} are {value}"


def _length(body: bytearray, rng: Random, other: bytes) -> str:
    """Replace a number that may be an offset or a length by another of the file's size."""
    width, size = rng.choice(((4, len(body)), (8, len(body))))
    start = _span(body, rng)[0] // width * width
    value = (size + rng.choice((-16, -8, -1, 0, 1, 8))) % (1 << 8 * width)
    body[start : start + width] = struct.pack("<I" if width == 4 else "<Q", value)
    return f"{width} bytes at {start} are {value}"


def _token(body: bytearray, rng: Random, other: bytes) -> str:
    """Replace a piece of a text by another piece, or by one of the same text."""
    start = rng.choice((0, rng.randrange(len(body) + 1)))
    found = list(_TOKEN.finditer(body, start, start + 4096))
    if not found:
        return "nothing"
    one = rng.choice(found)
    alike = [token for token in _TOKENS if _sort(token) == _sort(one[0])]
    new = rng.choice((rng.choice(_TOKENS), rng.choice(alike), rng.choice(alike), bytes(rng.choice(found)[0])))
    body[one.start() : one.end()] = new
    return f"{bytes(one[0])[:40]!r} at {one.start()} is {new[:40]!r}"


def _sort(token: bytes) -> str:
    """Return the kind of a token, whose replacements keep a text valid."""
    first = chr(token[0]) if token else ""
    if first == '"' and len(token) > 1:
        return "text"
    return "number" if first in "-0123456789NInft" else "sign"


def _tar_header(body: bytearray, rng: Random, other: bytes) -> str:
    """Change a field of a header, and correct the checksum."""
    headers = [at for at in range(0, len(body) - 511, 512) if body[at + 257 : at + 262] == b"ustar"]
    if not headers:
        return "nothing"
    at = rng.choice(headers)
    field = rng.choice(sorted(_TAR_FIELDS))
    start, width = _TAR_FIELDS[field]
    value = rng.choice((rng.choice(_TAR_VALUES), b"%011o" % (rng.choice(_NUMBERS) % 8**11), rng.randbytes(width)))
    body[at + start : at + start + width] = value[:width].ljust(width, b"\0")
    body[at + 148 : at + 156] = b" " * 8
    body[at + 148 : at + 156] = b"%06o\0 " % sum(body[at : at + 512])
    return f"{field} at {at} is {value[:20]!r}"


_ANY: tuple[_Damage, ...] = (_flip, _flip, _overwrite, _overwrite, _cut, _insert, _swap, _number, _length)
