"""Tars: read pictures and texts, write pictures, find the members."""

from __future__ import annotations

import glob
import mmap
import os
import tarfile
from collections.abc import Callable, Iterator

from harness import Case, Done, Place, copy_files, hash_files


def _limit_read(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """Every byte of the files into one buffer, again and again."""

    def way(place: Place) -> Callable[[], Done]:
        paths, facts = place.files(f"{corpus}/*.tar"), place.facts(corpus)
        buffer = bytearray(1 << 20)

        def work() -> Done:
            for path in paths:
                with open(path, "rb", buffering=0) as file:
                    while file.readinto(buffer):
                        pass
            return Done(facts["samples"], facts["payload_bytes"])

        return work

    return way


def _read_by_webdataset(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import webdataset

        paths = place.files(f"{corpus}/*.tar")

        def work() -> Done:
            samples = size = 0
            for sample in webdataset.DataPipeline(webdataset.SimpleShardList(paths), webdataset.tarfile_to_samples()):
                samples += 1
                for name, value in sample.items():
                    if not name.startswith("__"):
                        size += len(value)
            return Done(samples, size)

        return work

    return way


def _read_samples_by_lading(place: Place) -> Callable[[], Done]:
    """Every value as `bytes`, sample by sample, each let go before the next, as webdataset's are."""
    import lading

    paths = place.files("images/*.tar")

    def work() -> Done:
        samples = size = 0
        for sample in lading.open(paths).samples(raw=True):
            samples += 1
            size += len(sample["jpg"]) + len(sample["json"])
        return Done(samples, size)

    return work


def _read_lists_by_lading(place: Place) -> Callable[[], Done]:
    """Every value as `bytes`, all of a batch held at once: fresh memory for each costs more than the copy."""
    import lading

    paths = place.files("images/*.tar")

    def work() -> Done:
        samples = size = 0
        for batch in lading.open(paths).batches(max_rows=256, views=True):
            samples += batch.num_rows
            size += sum(len(value) for field in ("jpg", "json") for value in batch.column(field).to_pylist())
        return Done(samples, size)

    return work


def _read_texts_by_lading(place: Place) -> Callable[[], Done]:
    """Batches of joined columns."""
    import pyarrow.compute as pc

    import lading

    paths = place.files("texts/*.tar")

    def work() -> Done:
        samples = size = 0
        for batch in lading.open(paths).batches(max_rows=8192):
            samples += batch.num_rows
            size += sum(pc.sum(pc.binary_length(batch.column(field))).as_py() for field in ("cls", "txt"))
        return Done(samples, size)

    return work


def _pictures_in_maps(place: Place) -> Iterator[dict[str, object]]:
    """The samples of the corpus out of mapped files, so that writers are given what lies in memory."""
    for path in place.files("images/*.tar"):
        with tarfile.open(path, "r:") as tar, open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            members = tar.getmembers()
        for jpg, meta in zip(members[::2], members[1::2], strict=True):
            yield {"__key__": jpg.name[:-4], "jpg": (mapped, jpg), "json": (mapped, meta)}


def _value(place_of: tuple[mmap.mmap, tarfile.TarInfo]) -> bytes:
    mapped, member = place_of
    return mapped[member.offset_data : member.offset_data + member.size]


def _write_by_webdataset(place: Place) -> Callable[[], Done]:
    import webdataset

    samples, facts = list(_pictures_in_maps(place)), place.facts("images")

    def work() -> Done:
        pattern = os.path.join(place.out, "%06d.tar")
        with webdataset.ShardWriter(pattern, maxcount=1000, maxsize=1e12, verbose=0) as writer:
            for sample in samples:
                value = {"jpg": _value(sample["jpg"]), "json": _value(sample["json"])}
                writer.write({"__key__": sample["__key__"], **value})
        return Done(len(samples), facts["payload_bytes"])

    return work


def _write_samples_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    samples, facts = list(_pictures_in_maps(place)), place.facts("images")

    def work() -> Done:
        with lading.writer(os.path.join(place.out, "new"), format="webdataset", shard_size="100MB") as writer:
            for sample in samples:
                value = {"jpg": _value(sample["jpg"]), "json": _value(sample["json"])}
                writer.write({"__key__": sample["__key__"], **value})
        return Done(len(samples), facts["payload_bytes"])

    return work


def _write_batches_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    facts = place.facts("images")
    batches = list(lading.open(place.files("images/*.tar")).batches(max_rows=1000, views=True))

    def work() -> Done:
        with lading.writer(os.path.join(place.out, "new"), format="webdataset", shard_size="100MB") as writer:
            for batch in batches:
                writer.write_batch(batch)
        return Done(sum(batch.num_rows for batch in batches), facts["payload_bytes"])

    return work


def _limit_write(place: Place) -> Callable[[], Done]:
    paths, facts = place.files("images/*.tar"), place.facts("images")

    def work() -> Done:
        copy_files(paths, place.out)
        return Done(facts["samples"], facts["payload_bytes"])

    return work


def _index_by_tarfile(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        paths = place.files(f"{corpus}/*.tar")

        def work() -> Done:
            members = size = 0
            for path in paths:
                with tarfile.open(path, "r:") as tar:
                    found = tar.getmembers()
                members += len(found)
                size += sum(member.size for member in found)
            return Done(members, size)

        return work

    return way


def _index_by_lading(corpus: str, fields: tuple[str, ...]) -> Callable[[Place], Callable[[], Done]]:
    """The whole table of references, checksums of all headers verified."""

    def way(place: Place) -> Callable[[], Done]:
        from lading._core.arrow.references import unpack
        from lading._core.formats.base import ShardFile
        from lading._core.formats.registry import get_format
        from lading._core.storage.local import LocalStore

        paths, format_, store = place.files(f"{corpus}/*.tar"), get_format("webdataset"), LocalStore()

        def work() -> Done:
            members = size = 0
            for path in paths:
                reader = format_.open(ShardFile(store, path), format_.read_options({}))
                for field in fields:
                    refs = unpack(reader.index().column(field))
                    members += int(refs.valid.sum())
                    size += int(refs.length[refs.valid].sum())
                reader.close()
            return Done(members, size)

        return work

    return way


def _limit_index(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """One bare read of 512 bytes a member, sizes taken on trust."""

    def way(place: Place) -> Callable[[], Done]:
        paths = place.files(f"{corpus}/*.tar")

        def work() -> Done:
            members = size = 0
            for path in paths:
                descriptor, at = os.open(path, os.O_RDONLY), 0
                while (header := os.pread(descriptor, 512, at)) and header[0]:
                    length = int(header[124:135], 8)
                    members += 1
                    size += length
                    at += 512 + (length + 511) // 512 * 512
                os.close(descriptor)
            return Done(members, size)

        return work

    return way


def _own_images(place: Place) -> str:
    """A dataset of lading's own, of the pictures."""
    import lading

    out = os.path.join(place.out, "own")
    lading.convert(place.files("images/*.tar"), out, format="webdataset")
    return out


def _verify_by_lading(*, deep: bool) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        facts, out = place.facts("images"), _own_images(place)

        def work() -> Done:
            result = lading.verify(out, deep=deep)
            assert result.ok, result.findings
            return Done(result.samples, facts["payload_bytes"])

        return work

    return way


def _limit_verify(place: Place) -> Callable[[], Done]:
    """xxh3 of the bare files, those that are verified."""
    import xxhash

    facts, paths = place.facts("images"), sorted(glob.glob(os.path.join(_own_images(place), "*.tar")))

    def work() -> Done:
        hash_files(paths, xxhash.xxh3_64)
        return Done(facts["samples"], facts["payload_bytes"])

    return work


def _index_case(name: str, corpus: str, fields: tuple[str, ...]) -> Case:
    ways = {
        "tarfile": _index_by_tarfile(corpus),
        "lading": _index_by_lading(corpus, fields),
        "bare header walk": _limit_index(corpus),
    }
    return Case(name, f"{corpus}/*.tar", peer="tarfile", limit="bare header walk", ways=ways)


CASES = (
    Case(
        "read images",
        "images/*.tar",
        peer="webdataset",
        limit="readinto",
        ways={
            "webdataset": _read_by_webdataset("images"),
            "lading, sample by sample": _read_samples_by_lading,
            "lading, lists of a batch": _read_lists_by_lading,
            "readinto": _limit_read("images"),
        },
    ),
    Case(
        "read texts",
        "texts/*.tar",
        peer="webdataset",
        limit="readinto",
        ways={
            "webdataset": _read_by_webdataset("texts"),
            "lading": _read_texts_by_lading,
            "readinto": _limit_read("texts"),
        },
    ),
    Case(
        "write images",
        "images/*.tar",
        peer="webdataset",
        limit="copy",
        ways={
            "webdataset": _write_by_webdataset,
            "lading, batches": _write_batches_by_lading,
            "lading, sample by sample": _write_samples_by_lading,
            "copy": _limit_write,
        },
        writes=True,
    ),
    Case(
        "verify images",
        "images/*.tar",
        peer="xxh3",
        limit="xxh3",
        ways={
            "lading, deep": _verify_by_lading(deep=True),
            "lading, all samples read": _verify_by_lading(deep=False),
            "xxh3": _limit_verify,
        },
        writes=True,
    ),
    _index_case("index large members", "images", ("jpg", "json")),
    _index_case("index small members", "texts", ("cls", "txt")),
)
