"""Large values taken as views of their pages are those that pyarrow decodes, and damage is an error."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading._core.arrow.views import join, row_bytes
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.footer import read_footer
from lading._core.formats.parquet.format import FORMAT, ParquetReader
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.payload import _hybrid, payload_pages
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, LadingError
from lading.testing import CountingStore

NOISE = np.random.default_rng(5).bytes(200_000)


def parquet(values: list[bytes | None], *, nullable: bool = True, **options: Any) -> bytes:
    """A file with a column of these values between two others, written by pyarrow."""
    bin_field = pa.field("bin", pa.large_binary(), nullable=nullable)
    schema = pa.schema([("a", pa.int32()), bin_field, ("z", pa.string())])
    count = len(values)
    table = pa.table(
        [pa.array(range(count), pa.int32()), pa.array(values, pa.large_binary()), [f"t{i}" for i in range(count)]],
        schema=schema,
    )
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def opened(data: bytes, **options: Any) -> ParquetReader:
    source = ShardFile(MemoryStore({"s.parquet": data}), "s.parquet")
    return FORMAT.open(source, FORMAT.read_options({"mmap": True, **options}))


def taken(data: bytes, columns: list[str] | None = None, **limits: int) -> tuple[set[pa.DataType], list[Any]]:
    """In which types the values came, and the values."""
    limits = {"max_rows": 1000, "max_bytes": 1 << 30, **limits}
    batches = list(opened(data).batches(Scan(columns, views=True, **limits)))
    for batch in batches:
        batch.validate(full=True)
    kinds = {batch.column("bin").type for batch in batches}
    return kinds, [value for batch in batches for value in join(batch.column("bin")).to_pylist()]


_SIZES = st.sampled_from([0, 1, 12, 13, 3000, 9000, 20_000, 70_000])


@st.composite
def columns(draw: st.DrawFn) -> list[bytes | None]:
    """Values of very unlike sizes, some of them equal, but large in the mean."""
    starts = st.sampled_from([0, 7, 100, 1000, 50_000])
    one = st.tuples(starts, _SIZES).map(lambda place: NOISE[place[0] : place[0] + place[1]])
    values = draw(st.lists(st.none() | one, max_size=40))
    total = sum(len(value or b"") for value in values)
    return [*values, *[NOISE[i : i + 70_000] for i in range(len(values) // 10 + 1 + (total == 0))]]


@pytest.mark.soak
@settings(max_examples=150)
@given(
    columns(),
    st.fixed_dictionaries(
        {
            "compression": st.sampled_from(["none", "snappy", "zstd"]),
            "use_dictionary": st.booleans(),
            "data_page_size": st.sampled_from([1, 50_000, 1 << 20]),
            "write_batch_size": st.sampled_from([1, 5, 1024]),
            "row_group_size": st.sampled_from([3, 17, 1000]),
            "dictionary_pagesize_limit": st.sampled_from([1000, 100_000, 1 << 20]),
            "write_page_checksum": st.booleans(),
        }
    ),
    st.sampled_from([1, 7, 1000]),
)
def test_the_values_are_those_that_were_written(
    values: list[bytes | None], options: dict[str, Any], max_rows: int
) -> None:
    required = None not in values
    data = parquet(values, nullable=not required, **options)
    kinds, found = taken(data, max_rows=max_rows)
    assert found == values
    assert kinds <= {pa.binary_view(), pa.large_binary()}
    assert [
        r["a"] for b in opened(data).batches(Scan(max_rows=7, max_bytes=1 << 20, views=True)) for r in b.to_pylist()
    ] == [*range(len(values))]
    assert taken(data, ["z", "bin"])[1] == values
    assert taken(data, ["bin"])[1] == values


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_large_values_come_as_views_of_their_pages(compression: str, use_dictionary: bool) -> None:
    values = [NOISE[i * 10_000 :][:10_000] if i % 3 else None for i in range(20)]
    options = {"compression": compression, "use_dictionary": use_dictionary}
    kinds, found = taken(parquet(values, **options))
    assert (kinds, found) == ({pa.binary_view()}, values)


@pytest.mark.parametrize(
    "values, options",
    [
        ([b"small"] * 100, {}),
        ([NOISE[:10_000]] * 10, {"data_page_version": "2.0"}),
        ([NOISE[:10_000]] * 10, {"compression": "gzip"}),
        ([NOISE[:10_000]] * 10, {"column_encoding": {"bin": "DELTA_LENGTH_BYTE_ARRAY"}, "use_dictionary": False}),
    ],
    ids=["small values", "pages of version 2", "another codec", "another encoding"],
)
def test_pyarrow_decodes_what_is_not_taken(values: list[bytes | None], options: dict[str, Any]) -> None:
    assert taken(parquet(values, **options)) == ({pa.large_binary()}, values)


def test_a_filter_and_random_access_give_values_of_their_own() -> None:
    values: list[bytes | None] = [NOISE[i * 10 : i * 10 + 10_000] for i in range(20)]
    data = parquet(values)
    reader = opened(data, filter=pa.compute.field("a") > 14)
    [batch] = reader.batches(Scan(max_rows=100, max_bytes=1 << 30, views=True))
    assert batch.column("bin").type == pa.large_binary()
    assert batch.column("bin").to_pylist() == values[15:]
    assert opened(data).read(np.array([3]), Scan(["bin"])).schema.types == [pa.large_binary()]


def test_runs_and_packed_groups_as_the_specification_has_them() -> None:
    packed = bytes([3, 0b10001000, 0b11000110, 0b11111010])  # Encodings.md: 0 to 7 in three bits each
    assert _hybrid(memoryview(packed), 3, 8).tolist() == [*range(8)]
    assert _hybrid(memoryview(packed), 3, 5).tolist() == [*range(5)]
    assert _hybrid(memoryview(bytes([6, 5]) + packed), 3, 11).tolist() == [5, 5, 5, *range(8)]
    assert _hybrid(memoryview(bytes([0x80 | 72, 1, 0x39, 1])), 9, 100).tolist() == [0x139] * 100
    assert _hybrid(memoryview(b""), 0, 3).tolist() == [0, 0, 0]
    many = bytes([6, 2])  # three times the number 2
    assert _hybrid(memoryview(many), 2, 3).tolist() == [2, 2, 2]
    for bad, width, count in ((packed, 3, 9), (b"", 1, 1), (b"\0" * 50, 1, 1), (b"\xff" * 50, 1, 1), (b"\2", 40, 1),
                              (many, 1, 3)):  # fmt: skip
        with pytest.raises(pa.ArrowInvalid):
            _hybrid(memoryview(bad), width, count)


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
def test_flipped_bits_are_an_error_or_other_values_never_a_crash(
    compression: str, use_dictionary: bool, checksums: bool, tmp_path: Path
) -> None:
    values: list[bytes | None] = [NOISE[i * 100 : i * 100 + 2500] if i % 4 else None for i in range(40)]
    options = {"compression": compression, "use_dictionary": use_dictionary, "write_page_checksum": checksums}
    data = parquet(values, data_page_size=20_000, write_batch_size=4, **options)
    random = np.random.default_rng(1)
    # Among the first bytes of a page stand its header, its levels and the first length.
    places = [*range(4, 500, 3), *random.integers(4, len(data) - 2000, 150).tolist()]
    path = tmp_path / "s.parquet"
    wrong, said = 0, []
    for place in places:
        broken = bytearray(data)
        broken[place] ^= int(random.integers(1, 256))
        path.write_bytes(broken)
        try:
            reader = FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options({}))
            batches = reader.batches(Scan(["bin"], max_rows=1000, max_bytes=1 << 30, views=True))
            found = [value for batch in batches for value in join(batch.column("bin")).to_pylist()]
        except LadingError as error:
            said.append(str(error))
        else:
            wrong += found != values
            assert len(found) == len(values)
    assert said
    assert all(str(path) in text for text in said)
    assert not (checksums and wrong > 3), "checksums find nearly all (of headers there are none)"


def test_a_file_cut_in_its_pages_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    values: list[bytes | None] = [NOISE[i * 100 : i * 100 + 5000] for i in range(40)]
    data = bytearray(parquet(values, compression="none", use_dictionary=False))
    at = data.index(NOISE[:5000]) - 4
    data[at : at + 4] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(LadingError, match=r"s\.parquet @ \d+ column 'bin': row group 0: a page cannot be read"):
        taken(bytes(data))


@pytest.mark.soak
def test_large_values_behind_small_ones_come_in_small_steps() -> None:
    values: list[bytes | None] = [*([b"x"] * 2000), *(NOISE * 5 for _ in range(60))]
    data = parquet(values, compression="none", use_dictionary=False, write_batch_size=1, row_group_size=1 << 20)
    batches = list(opened(data).batches(Scan(max_rows=100_000, max_bytes=4 << 20, views=True)))
    assert all(batch.column("bin").type == pa.binary_view() for batch in batches)
    assert max(batch.column("bin").get_total_buffer_size() for batch in batches) < 6 << 20
    assert [value for batch in batches for value in join(batch.column("bin")).to_pylist()] == values


def test_a_value_that_a_dictionary_repeats_counts_every_time() -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([NOISE * 3], pa.large_binary()))
    out = io.BytesIO()
    options = {"compression": "none", "store_schema": False, "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(pa.table({"bin": repeated}), out, **options)
    batches = list(opened(out.getvalue()).batches(Scan(max_rows=1000, max_bytes=2 << 20, views=True)))
    assert sum(batch.num_rows for batch in batches) == 200
    assert max(int(row_bytes(batch).sum()) for batch in batches) <= 2 << 20


def test_a_remote_file_is_fetched_once() -> None:
    data = parquet([NOISE * 5 for _ in range(20)], compression="none", use_dictionary=False)
    read = []
    for views in (False, True):
        store = CountingStore(MemoryStore({"s.parquet": data}))
        reader = FORMAT.open(ShardFile(store, "s.parquet"), FORMAT.read_options({}))
        assert sum(b.num_rows for b in reader.batches(Scan(max_rows=1000, max_bytes=1 << 30, views=views))) == 20
        read.append(store.bytes_read)
    assert read[0] == read[1]


def large_page(**options: Any) -> tuple[list[bytes | None], bytearray, int, int]:
    """Ten large values in one uncompressed page, the file, where the page's header is, and the first length."""
    values: list[bytes | None] = [NOISE[i * 5000 :][:5000] for i in range(10)]
    data = parquet(values, compression="none", use_dictionary=False, write_statistics=False, **options)
    at = data.index(NOISE[:5000]) - 4
    size = b"\x15[^\x15]{3}"
    header = re.search(rb"\x15\x00" + size + size, data[at - 50 : at])
    assert header is not None
    return values, bytearray(data), at - 50 + header.start(), at


def test_a_level_that_cannot_be_is_damage() -> None:
    _, data, _, at = large_page()
    assert data[at - 1] == 1
    data[at - 1] = 2
    with pytest.raises(CorruptShard, match="column 'bin'"):
        taken(bytes(data))


def test_a_checksum_that_is_no_number_is_no_checksum() -> None:
    values, data, header, _ = large_page(write_page_checksum=True, nullable=False)
    assert data[header + 10] == 0x15  # field 4, a number of five bytes
    data[header + 10 : header + 16] = b"\x18\x04abcd"  # the same bytes as text
    assert taken(bytes(data))[1] == values


def test_no_more_headers_are_looked_at_than_there_may_be_pages(tmp_path: Path) -> None:
    _, data, header, at = large_page(nullable=False)
    empty = bytes.fromhex("1500150015002c150015001506150600 00")
    del data[at : at + len(empty) * 2000]
    data[header:header] = empty * 2000
    (tmp_path / "s.parquet").write_bytes(data)
    looked: list[int] = []

    class Watched(Input):
        def read_at(self, offset: int, length: int) -> bytes:
            looked.append(offset)
            return super().read_at(offset, length)

    path = str(tmp_path / "s.parquet")
    file = Watched(ShardFile(LocalStore(), path), pa.OSFile(path), None, None)
    footer = read_footer(file)
    looked.clear()
    assert payload_pages(file, [footer.chunk(0, 1)]) is None
    assert looked == [header]
    file.close()
