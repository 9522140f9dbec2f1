"""Tar headers and single members, against Python's tarfile."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lading._core.formats.webdataset.header_writer import END, make_heads
from lading._core.formats.webdataset.headers import (
    BLOCK,
    Cursor,
    Headers,
    Window,
    checksums,
    is_header,
    padded,
    read_member,
)
from lading.errors import CorruptShard, LimitExceeded

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=120)
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def archive(*members: tuple[tarfile.TarInfo, bytes], **options: object) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", **options) as tar:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return body.getvalue()


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def window(data: bytes, **parts: int) -> Window:
    return Window(np.frombuffer(data, np.uint8), parts.get("base", 0), parts.get("total", len(data)))


def read_all(data: bytes) -> list[tuple[str, bytes, int, int, int]]:
    """Name, type, start, payload and its size of every member, read one by one."""
    members, cursor = [], Cursor()
    while True:
        found, cursor = read_member(window(data), cursor)
        if cursor.done:
            return members
        members.append(describe(found, 0))


def describe(found: Headers, row: int) -> tuple[str, bytes, int, int, int]:
    name = found.name(row).decode(errors="surrogateescape")
    places = int(found.start[row]), int(found.offset[row]), int(found.length[row])
    return name, bytes([found.kind[row]]), *places


def by_tarfile(data: bytes) -> list[tuple[str, bytes, int, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return [(m.name, m.type, m.offset, m.offset_data, m.size if m.isreg() else 0) for m in tar.getmembers()]


def resealed(block: bytes, *, signed: bool = False) -> bytes:
    """A header with the checksum it should have, summed here byte by byte."""
    plain = block[:148] + b" " * 8 + block[156:]
    total = sum(b - 256 if signed and b > 127 else b for b in plain)
    return plain[:148] + b"%06o\0 " % total + plain[156:]


def with_field(block: bytes, at: int, value: bytes) -> bytes:
    return resealed(block[:at] + value + block[at + len(value) :])


@given(st.lists(st.tuples(NAMES, st.binary(max_size=700)), max_size=5), st.sampled_from(FORMATS))
def test_members_are_those_that_tarfile_sees(members: list[tuple[str, bytes]], form: int) -> None:
    assume(form != tarfile.USTAR_FORMAT or all(len(name.encode()) < 90 for name, _ in members))
    infos = [(entry(f"dir/{name}.x"), data) for name, data in members]
    data = archive(*infos, format=form)
    assert read_all(data) == by_tarfile(data)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "name", ["p" * 80 + "/" + "q" * 90 + ".txt", "é" * 60 + "/k.txt", "n" * 99 + ".x", "n" * 100, "a/" * 60 + "b.c"]
)
def test_long_names_in_every_way_of_storing_them(form: int, name: str) -> None:
    try:
        data = archive((entry(name), b"one"), (entry("short.x"), b"two"), format=form)
    except ValueError:
        pytest.skip("this format has no room for the name")
    assert read_all(data) == by_tarfile(data)


def test_links_folders_and_devices_have_no_payload() -> None:
    kinds = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    members = [(entry(f"m{kind.decode()}.x", type=kind, linkname="t"), b"") for kind in kinds]
    data = archive((entry("a.x"), b"1"), *members, (entry("z.x"), b"2"))
    assert read_all(data) == by_tarfile(data)
    # A size that such a header states is not followed by data (tarfile.py, `_proc_builtin`).
    stated = data[:1024] + with_field(data[1024:1536], 124, b"00000000777\0") + data[1536:]
    assert read_all(stated) == by_tarfile(stated)


def test_an_old_folder_is_a_nameless_type_and_a_final_slash() -> None:
    data = archive((entry("folder/"), b""), (entry("a.x"), b"1"))
    old = with_field(data[:512], 156, b"\0") + data[512:]
    found, _ = read_member(window(old), Cursor())
    assert describe(found, 0) == ("folder/", b"5", 0, 512, 0)
    assert [kind for _, kind, *_ in by_tarfile(old)] == [b"5", b"0"]


def test_a_prefix_counts_only_under_the_magic_of_posix() -> None:
    data = archive((entry("a.x"), b"1"))
    assert read_all(with_field(data[:512], 345, b"pre") + data[512:])[0][0] == "pre/a.x"
    # GNU keeps times there; its magic ends in two spaces.
    gnu = with_field(with_field(data[:512], 345, b"14567"), 257, b"ustar  \0")
    assert read_all(gnu + data[512:])[0][0] == "a.x"


def test_headers_without_magic_are_read() -> None:
    data = archive((entry("a.x"), b"1"))
    assert read_all(with_field(data[:512], 257, bytes(255)) + data[512:]) == by_tarfile(data)


@pytest.mark.parametrize(
    "text, size",
    [
        (b"00000000007\0", 7),
        (b"          7 ", 7),
        (b"7\0garbage!!\0", 7),
        (b"            ", 0),
        (bytes(12), 0),
        (b"\x80" + bytes(10) + b"\x07", 7),
    ],
)
def test_spellings_of_a_size(text: bytes, size: int) -> None:
    header = archive((entry("a.x"), b""))[:512]
    data = with_field(header, 124, text[:12]) + bytes(padded(size)) + END
    assert [length for *_, length in read_all(data)] == [size]


@pytest.mark.parametrize(
    "text", [b"9999xyz9999\0", b"\xff" * 12, b"\xc0" + bytes(11), b"-0000000512\0", b"0x10\0\0\0\0\0\0\0\0"]
)
def test_a_size_that_is_no_size(text: bytes) -> None:
    data = with_field(archive((entry("a.x"), b""))[:512], 124, text) + END
    with pytest.raises(CorruptShard, match="not a number") as caught:
        read_all(data)
    assert caught.value.offset == 0


def test_a_size_too_large_for_the_file_sets_nothing_aside() -> None:
    data = archive((entry("ok.x"), b"1"))[:1024] + with_field(
        archive((entry("a.x"), b""))[:512], 124, b"\xa0" + bytes(11)
    )
    with pytest.raises(CorruptShard, match="cut") as caught:
        read_all(data + END)
    assert caught.value.offset == 1024


def test_a_size_that_no_file_has_where_the_end_is_not_known() -> None:
    data = with_field(archive((entry("a.x"), b""))[:512], 124, b"\xa0" + bytes(11))
    with pytest.raises(LimitExceeded, match="too large"):
        read_member(Window(np.frombuffer(data, np.uint8), 0, None), Cursor())


def test_the_historical_signed_checksum_is_accepted() -> None:
    header = archive((entry("a.x"), b""))[:512]
    named = b"\xe9\xe8.x".ljust(100, b"\0") + header[100:]
    assert is_header(resealed(named))
    assert is_header(resealed(named, signed=True))
    assert not is_header(named)
    assert not is_header(bytes(512))


@given(st.lists(st.binary(min_size=512, max_size=512), min_size=1, max_size=4))
def test_checksums_are_the_sum_of_the_bytes(blocks: list[bytes]) -> None:
    headers = np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, 512)
    expected = [sum(b[:148]) + 8 * 32 + sum(b[156:]) for b in blocks]
    assert checksums(headers).tolist() == expected


def pax(body: bytes, *, kind: bytes = b"x", member: bytes | None = None) -> bytes:
    """A pax header with any body, then a member of three bytes."""
    header = with_field(with_field(archive((entry("PaxHeader"), b""))[:512], 156, kind), 124, b"%011o\0" % len(body))
    return (
        header
        + body.ljust(padded(len(body)), b"\0")
        + (archive((entry("a.txt"), b"abc")) if member is None else member)
    )


def record(key: bytes, value: bytes) -> bytes:
    return next(text for n in range(9999) if len(text := b"%d %s=%s\n" % (n, key, value)) == n)


def test_pax_records_override_name_and_size() -> None:
    data = pax(record(b"path", "ü.txt".encode()) + record(b"size", b"2") + record(b"mtime", b"1.5"))
    assert read_all(data) == by_tarfile(data) == [("ü.txt", b"0", 0, 1536, 2)]


@pytest.mark.parametrize("kind", [b"x", b"g"])
def test_a_final_slash_of_a_record_is_no_part_of_a_name(kind: bytes) -> None:
    data = pax(record(b"path", b"b.txt/"), kind=kind)
    assert [name for name, *_ in read_all(data)] == [name for name, *_ in by_tarfile(data)] == ["b.txt"]


@pytest.mark.parametrize("value", [b"", b"/"])
def test_an_empty_record_leaves_the_name_of_the_header(value: bytes) -> None:
    """POSIX has an empty value delete what other records say; of what is left, the header's name is one."""
    own = pax(record(b"path", value))
    assert [name for name, *_ in read_all(own)] == ["a.txt"]
    assert [name for name, *_ in read_all(pax(record(b"path", b"g.txt"), kind=b"g", member=own))] == ["a.txt"]


def test_a_global_record_holds_until_it_is_replaced() -> None:
    three = b"".join(archive((entry(name), b"abc"))[:1024] for name in ("a.x", "b.x"))
    replaced = pax(record(b"path", b"h.x"), kind=b"g", member=archive((entry("c.x"), b"1")))
    cleared = pax(record(b"path", b""), kind=b"g", member=archive((entry("d.x"), b"1")))
    data = pax(record(b"path", b"g.x"), kind=b"g", member=three + replaced[:2048] + cleared)
    assert [name for name, *_ in read_all(data)] == ["g.x", "g.x", "h.x", "d.x"]
    one = pax(record(b"path", b"own.x"), member=three)
    assert [name for name, *_ in read_all(pax(record(b"path", b"g.x"), kind=b"g", member=one) + END)] == [
        "own.x",
        "g.x",
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"0 path=x\n",
        b"99999 path=x\n",
        b"9 pathx\n",
        b"x path=1\n",
        b"-9 path=x\n",
        b"10 path=xx",
        b"7 =abc\n",
        b" 9 a=bc\n",
    ],
)
def test_a_broken_record_names_its_place(body: bytes) -> None:
    good = record(b"mtime", b"1")
    with pytest.raises(CorruptShard, match="pax record") as caught:
        read_all(pax(good + body))
    assert caught.value.offset == 512 + len(good)


@pytest.mark.parametrize("value", [b"abc", b"-512", b"1e3", b""])
def test_a_broken_size_record(value: bytes) -> None:
    with pytest.raises(CorruptShard, match="size of a member"):
        read_all(pax(record(b"size", value)))


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(CorruptShard, match="NUL"):
        read_all(pax(record(b"path", b"a\0b.txt")))


LIMITS: dict[str, Callable[[], bytes]] = {
    "1048576 bytes": lambda: with_field(pax(b"")[:512], 124, b"%011o\0" % (1 << 21)) + END,
    "100": lambda: pax(record(b"mtime", b"1"))[:1024] * 101 + archive((entry("a.x"), b"")),
    "4096 bytes": lambda: pax(record(b"path", b"n" * 4097)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_are_named(limit: str) -> None:
    with pytest.raises(LimitExceeded, match=f"at most {limit}"):
        read_all(LIMITS[limit]())


def test_a_map_of_holes_has_a_limit() -> None:
    header = with_field(with_field(archive((entry("s.x"), b""))[:512], 156, b"S"), 482, b"\1")
    more = bytes(504) + b"\1" + bytes(7)
    with pytest.raises(LimitExceeded, match="at most 2048 blocks"):
        read_all(header + more * 2050 + END)


def test_an_archive_ends_with_zeros_or_with_the_file() -> None:
    data = archive((entry("a.x"), b"1"))[:1024]
    for end, closed in ((END, True), (bytes(512), True), (b"", False), (bytes(100), False), (END + b"trailing", True)):
        found, cursor = read_member(window(data + end), Cursor(1024))
        assert (len(found), cursor.done, cursor.closed, cursor.lone) == (0, True, closed, False)


def test_a_lone_block_of_zeros_ends_an_archive_too() -> None:
    data = archive((entry("a.x"), b"1"))[:1024]
    for more, lone, behind in ((data, False, 1536), (b"x" * 600, True, 0), (b"x", True, 0)):
        found, cursor = read_member(window(data + bytes(512) + more), Cursor(1024))
        assert (len(found), cursor.done, cursor.closed, cursor.lone, cursor.behind) == (0, True, True, lone, behind)


@pytest.mark.parametrize("zeros", [1, 2, 20, 21, 2046])
def test_a_header_behind_the_zeros_of_an_archive(zeros: int) -> None:
    """At most 1 MiB of zeros: `tar -b 2048`, the largest record that tar programs write."""
    data = archive((entry("a.x"), b"1"))[:1024]
    more = window(data + bytes(512 * zeros) + data)
    found, cursor = read_member(more, Cursor(1024))
    assert (len(found), cursor.done, cursor.lone, cursor.behind) == (0, True, False, 1024 + 512 * zeros)
    found, cursor = read_member(more, Cursor(1024, on_concatenated="read"))
    assert (found.name(0), found.start[0], cursor.at) == (b"a.x", 1024 + 512 * zeros, 2048 + 512 * zeros)
    with pytest.raises(
        CorruptShard, match=f"follow the end of the archive.*header at {1024 + 512 * zeros}.*on_concatenated"
    ):
        read_member(more, Cursor(1024, on_concatenated="error"))


def test_an_extension_record_without_a_member() -> None:
    with pytest.raises(CorruptShard, match="extension record"):
        read_all(pax(record(b"path", b"a.x"), member=END))


@pytest.mark.parametrize("size", [1, 100, 511])
def test_a_cut_header(size: int) -> None:
    data = archive((entry("a.x"), b"1"), (entry("b.x"), b"2"))
    with pytest.raises(CorruptShard, match="not a tar"):
        read_all(data[:size])
    with pytest.raises(CorruptShard, match="header is cut") as caught:
        read_all(data[: 1024 + size])
    assert caught.value.offset == 1024


def test_a_window_says_what_it_needs() -> None:
    data = pax(record(b"path", b"long.x"))
    wanted = []
    cursor, stop = Cursor(), 0
    while True:
        found, cursor = read_member(window(data[:stop], total=len(data)), cursor)
        if len(found):
            break
        assert cursor.need > stop
        stop = cursor.need
        wanted.append(stop)
    assert describe(found, 0) == ("long.x", b"0", 0, 1536, 3)
    assert wanted[-1] <= 1536


@given(st.binary(max_size=3 * BLOCK), st.integers(0, 2048), st.integers(0, 255))
def test_damage_ends_in_data_or_an_error(noise: bytes, at: int, flip: int) -> None:
    data = bytearray(pax(record(b"path", b"x.y") + record(b"size", b"3")))
    data[at % len(data)] ^= flip
    for damaged in (bytes(data), bytes(data[:at]) + noise):
        with suppress(CorruptShard, LimitExceeded):
            assert all(size >= 0 for *_, size in read_all(damaged))


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 2000)), max_size=6),
    st.integers(0, 8**11 - 1),
)
def test_heads_are_read_by_tarfile(members: list[tuple[str, int]], mtime: int) -> None:
    names = pa.array([f"{'d/' * (i * 30)}{name}" for i, (name, _) in enumerate(members)], pa.string())
    size = np.array([size for _, size in members], np.int64)
    blocks, bounds = make_heads(names, size, mtime)
    body = b"".join(
        blocks[a:b].tobytes() + bytes(padded(int(n))) for a, b, n in zip(bounds[:-1], bounds[1:], size, strict=True)
    )
    with tarfile.open(fileobj=io.BytesIO(body + END), mode="r:") as tar:
        found = [(m.name, m.size, m.mtime, m.mode, m.uname, m.gname, m.uid, m.type) for m in tar.getmembers()]
    expected = [
        (n, int(s), mtime, 0o444, "bigdata", "bigdata", 0, b"0") for n, s in zip(names.to_pylist(), size, strict=True)
    ]
    assert found == expected


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 1 << 40])
def test_sizes_of_eight_gibibytes_and_more(size: int) -> None:
    blocks, _ = make_heads(pa.array(["big.bin"]), np.array([size]), 0)
    with tarfile.open(fileobj=io.BytesIO(blocks.tobytes()), mode="r:") as tar:
        member = tar.next()
    assert member is not None
    assert (member.name, member.size) == ("big.bin", size)
