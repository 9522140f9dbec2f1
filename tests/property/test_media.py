"""Laws of media archives: what is written is read, whatever the options."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.media import MediaReader, MediaWriter
from media import document, without_bytes

_BYTES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=9), st.integers(0, 60_000)),
    st.sampled_from([bytes(1 << 17), bytes(1 << 18), bytes(range(256)) * 1024]),
)
_DOCUMENTS = st.lists(st.lists(_BYTES, max_size=4), max_size=8)
_WRITING = st.fixed_dictionaries(
    {
        "max_file_size": st.sampled_from([-1, 1, 1000, 5 << 30]),
        "compression_level": st.sampled_from([-1, 3, 7]),
        "content_size": st.booleans(),
        "checksum": st.booleans(),
        "workers": st.integers(1, 3),
        "output_filename": st.sampled_from([None, "a/${rank}.x", "one"]),
    }
)
_NUMBERS = count()


@pytest.mark.soak
@settings(max_examples=60)
@given(_DOCUMENTS, _WRITING, st.booleans(), st.integers(1, 3), st.booleans(), st.integers(1, 1 << 20), st.booleans())
def test_write_then_read_is_the_same(
    contents: list[list[bytes]],
    writing: dict[str, Any],
    plain: bool,
    workers: int,
    ordered: bool,
    block_size: int,
    far: bool,
) -> None:
    store = MemoryStore()
    if far:
        store.request_bytes = 1 << 20  # type: ignore[misc] # one store's own
    place, stores = f"mem:{next(_NUMBERS)}", Stores({"mem:": store})
    if plain:
        writing = {**writing, "codec": "none", "content_size": False, "checksum": False}
    written = [document(*parts, name=str(at)) for at, parts in enumerate(contents)]
    with MediaWriter(place, stores=stores, **writing) as writer:
        assert list(writer.run(written)) == written
    codec = "none" if plain else "zstd"
    reader = MediaReader(place, block_size, workers, 4, ordered, codec=codec, stores=stores)
    found = list(reader.run(without_bytes(written)))
    assert (found if ordered else sorted(found, key=lambda doc: int(doc["id"]))) == written
    read, wrote = reader.stats, writer.stats
    assert (read.records, read.payload_bytes, read.stored_bytes) == (
        wrote.records,
        wrote.payload_bytes,
        wrote.stored_bytes,
    )
    assert wrote.stored_bytes == sum(info.size_bytes for info in store.walk(place))


@pytest.mark.soak
@settings(max_examples=60)
@given(_DOCUMENTS)
def test_the_number_of_workers_does_not_show(contents: list[list[bytes]]) -> None:
    stores = [MemoryStore(), MemoryStore()]
    for workers, store in enumerate(stores, 1):
        documents = [document(*parts) for parts in contents]
        with MediaWriter("mem:", "x/y", 3000, workers=2 * workers - 1, stores=Stores({"mem:": store})) as writer:
            list(writer.run(documents))
    one, other = ([(info.path, info.size_bytes) for info in store.walk("")] for store in stores)
    assert one == other
    for path, size in one:
        assert stores[0].get_ranges(path, [(0, size)]) == stores[1].get_ranges(path, [(0, size)])
