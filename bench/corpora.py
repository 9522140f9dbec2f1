"""Make the files that the benches read: seeded, the same bytes every time.

    images/*.tar         20,000 samples: a picture of about 100 KB that does not compress, and a small JSON
    texts/*.tar          500,000 samples: a text of about 300 bytes and a class number
    photos/*.tar         2,000 real JPEGs of 640 × 480 pixels, about 65 KB each
    cameras/*.tar        160 real JPEGs of 4,000 × 3,000 pixels, about 2 MB each
    documents/*.tar      4,000 interleaved documents of about 250 KB: five texts and four pictures in turn
    documents/*.parquet  the same, made of the tars by NeMo Curator
    references/*.parquet the same without bytes: source_ref texts that lead into the tars
    images-mds/, texts-mds/, photos-mds/  the samples of the first three as MDS, made by mosaicml-streaming
    images-arrow/, texts-arrow/, photos-arrow/  the same as Arrow streams, saved by datasets
    texts-cache/         the texts as a cache of lading's
    media/contents.bin   4,000 media of about 100 KB, every second of which compresses to half
    media/archive/*      the same as zstd records, made by datatrove; media/places.json says where each lies
    facts.json           samples, members and bytes of values of each

That is `--full`, 6 GB; without it a tenth, of the media a quarter. What is there already is kept.
"""

from __future__ import annotations

import argparse
import glob
import io
import json
import os
import shutil
import struct
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

_SHARDS = {"images": 20, "texts": 20, "documents": 40, "photos": 20, "cameras": 20}
_MDS = {"images": {"jpg": "bytes", "json": "bytes"}, "texts": {"cls": "int", "txt": "str"}, "photos": {"jpg": "bytes"}}
_PER_SHARD = {"images": 1000, "texts": 25_000, "documents": 100, "photos": 100, "cameras": 8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder to make them in")
    parser.add_argument("--full", action="store_true", help="the large corpora")
    args = parser.parse_args()
    facts = {}
    makers = {"images": _image, "texts": _text, "documents": _document, "photos": _photo, "cameras": _camera}
    for seed, (name, make) in enumerate(makers.items()):
        shards = _SHARDS[name] if args.full else _SHARDS[name] // 10
        facts[name] = _corpus(os.path.join(args.data, name), seed, shards, _PER_SHARD[name], make)
    facts["media"] = _media(os.path.join(args.data, "media"), 4000 if args.full else 1000)
    _parquet_by_nemo(os.path.join(args.data, "documents"))
    for name, columns in _MDS.items():
        _mds_by_streaming(os.path.join(args.data, name), columns)
        _arrow_by_datasets(os.path.join(args.data, name), columns)
    _cache_by_lading(os.path.join(args.data, "texts"), _MDS["texts"])
    _without_bytes(os.path.join(args.data, "documents"), os.path.join(args.data, "references"))
    with open(os.path.join(args.data, "facts.json"), "w", encoding="utf-8") as out:
        json.dump(facts, out, indent=1)


def _corpus(folder: str, seed: int, shards: int, samples: int, make) -> dict[str, int]:
    os.makedirs(folder, exist_ok=True)
    words = _words(np.random.default_rng(seed), 4 << 20)
    total = {"samples": shards * samples, "members": 0, "payload_bytes": 0}
    for shard in range(shards):
        path = os.path.join(folder, f"{shard:06d}.tar")
        if not os.path.exists(path):
            random = np.random.default_rng([seed, shard])
            members = (m for i in range(samples) for m in make(random, words, shard * samples + i))
            _write_tar(path, members)
        with tarfile.open(path, "r:") as tar:
            sizes = [member.size for member in tar]
        total["members"] += len(sizes)
        total["payload_bytes"] += sum(sizes)
    return total


def _image(random, words: str, i: int) -> Iterator[tuple[str, bytes]]:
    yield f"{i:08d}.jpg", _picture(random, 100_000)
    meta = {"caption": _passage(random, words, 120), "width": 640, "height": 480, "url": f"https://example.org/{i}.jpg"}
    yield f"{i:08d}.json", json.dumps(meta).encode()


def _text(random, words: str, i: int) -> Iterator[tuple[str, bytes]]:
    size = int(np.clip(random.lognormal(np.log(300), 0.3), 40, 2000))
    yield f"{i:08d}.cls", str(random.integers(-(2**62), 2**62)).encode()
    yield f"{i:08d}.txt", _passage(random, words, size).encode()


def _document(random, words: str, i: int) -> Iterator[tuple[str, bytes]]:
    key = f"doc{i:08d}"
    texts = [_passage(random, words, int(random.integers(300, 700))) if at % 2 == 0 else None for at in range(9)]
    images = [f"{key}.{at}.jpg" if at % 2 else None for at in range(9)]
    meta = {"texts": texts, "images": images, "url": f"https://example.org/{i}", "score": round(random.random(), 6)}
    yield f"{key}.json", json.dumps(meta).encode()
    for name in filter(None, images):
        yield name, _picture(random, 60_000)


def _media(folder: str, count: int) -> dict[str, int]:
    places = os.path.join(folder, "places.json")
    if not os.path.exists(places):
        os.makedirs(folder, exist_ok=True)
        random = np.random.default_rng(len(_SHARDS))
        sizes = np.clip(random.lognormal(np.log(100_000) - 0.125, 0.5, count), 4_000, 1_500_000).astype(int).tolist()
        contents = [random.bytes(size) for size in sizes]
        contents[1::2] = [(np.frombuffer(data, np.uint8) & 0x0F).tobytes() for data in contents[1::2]]
        with open(os.path.join(folder, "contents.bin"), "wb") as out:
            out.writelines(contents)
        found = _archive_by_datatrove(os.path.join(folder, "archive"), contents)
        with open(places, "w", encoding="utf-8") as out:
            json.dump([(*place, size) for place, size in zip(found, sizes, strict=True)], out)
    size = os.path.getsize(os.path.join(folder, "contents.bin"))
    return {"samples": count, "members": count, "payload_bytes": size}


def _archive_by_datatrove(folder: str, contents: list[bytes]) -> Iterator[tuple[str, int, int]]:
    from datatrove.data import Document, Media
    from datatrove.pipeline.media.media_writers.zstd import ZstdWriter

    documents = (Document("", "", [Media("", 0, "", media_bytes=data)]) for data in contents)
    for document in ZstdWriter(folder).run(documents):
        [one] = document.media
        yield one.path, one.offset, one.length


def _picture(random, mean_bytes: int) -> bytes:
    """What any reader takes for a JPEG until it decodes it; three in eight are as wide as high, up to twice as wide."""
    size = int(np.clip(random.lognormal(np.log(mean_bytes) - 0.125, 0.5), 4_000, 15 * mean_bytes))
    height = int(random.integers(200, 1000))
    width = int(height * np.exp(random.uniform(np.log(0.35), np.log(2.2))))
    start = bytes.fromhex("ffd8ffe000104a46494600010100000100010000")
    frame = struct.pack(">HHBHH", 0xFFC0, 17, 8, height, width) + bytes.fromhex("03012200021101031101")
    scan = bytes.fromhex("ffda000c03010002110311003f00")
    return start + frame + scan + random.bytes(size - len(start + frame + scan))


def _photo(random, _: str, i: int) -> Iterator[tuple[str, bytes]]:
    yield f"{i:08d}.jpg", _jpeg(random, 640, 480)


def _camera(random, _: str, i: int) -> Iterator[tuple[str, bytes]]:
    yield f"{i:08d}.jpg", _jpeg(random, 4000, 3000)


def _jpeg(random, width: int, height: int) -> bytes:
    """Soft shapes and some grain, as a JPEG."""
    from PIL import Image

    shapes = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height), resample=3)
    grain = random.integers(-12, 13, (height, width, 3), np.int16)
    out = io.BytesIO()
    Image.fromarray(np.clip(np.asarray(shapes) + grain, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def _words(random, size: int) -> str:
    letters = [bytes(random.integers(97, 123, random.integers(2, 10), np.uint8)).decode() for _ in range(2000)]
    return " ".join(letters[i] for i in random.integers(0, len(letters), size // 6))


def _passage(random, words: str, size: int) -> str:
    start = int(random.integers(0, len(words) - size))
    return words[start : start + size]


def _write_tar(path: str, members: Iterable[tuple[str, bytes]]) -> None:
    with open(f"{path}.part", "wb") as out:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512))
        out.write(bytes(1024))
    os.replace(f"{path}.part", path)


def _parquet_by_nemo(folder: str) -> None:
    from nemo_curator.stages.interleaved.io.readers import InterleavedWebdatasetReaderStage
    from nemo_curator.stages.interleaved.io.writers import InterleavedParquetWriterStage
    from nemo_curator.tasks import FileGroupTask

    tars = sorted(glob.glob(os.path.join(os.path.abspath(folder), "*.tar")))
    if len(glob.glob(os.path.join(folder, "*.parquet"))) == len(tars):
        return
    read = InterleavedWebdatasetReaderStage(materialize_on_read=True)
    write = InterleavedParquetWriterStage(path=folder, mode="ignore")
    for tar in tars:
        write.process(read.process(FileGroupTask(dataset_name="documents", data=[tar])))


def _mds_by_streaming(folder: str, columns: dict[str, str]) -> None:
    from peers_here import mosaicml_streaming

    target = f"{folder}-mds"
    if os.path.exists(os.path.join(target, "index.json")):
        return
    shutil.rmtree(target, ignore_errors=True)
    with mosaicml_streaming().MDSWriter(out=target, columns=columns) as writer:
        for sample in _samples(folder, columns):
            writer.write(sample)


def _samples(folder: str, columns: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The samples of tars, values in the types that MDS calls so."""
    values = {"int": int, "str": bytes.decode, "bytes": bytes}
    for path in sorted(glob.glob(os.path.join(folder, "*.tar"))):
        with tarfile.open(path, "r:") as tar:
            members = iter(tar)
            for group in zip(*[members] * len(columns), strict=True):
                found = {m.name.split(".")[1]: tar.extractfile(m).read() for m in group}
                yield {name: values[kind](found[name]) for name, kind in columns.items()}


def _arrow_by_datasets(folder: str, columns: dict[str, str]) -> None:
    import datasets

    target = f"{folder}-arrow"
    if os.path.exists(os.path.join(target, "state.json")):
        return
    kinds = {"int": "int64", "str": "string", "bytes": "binary"}
    features = datasets.Features({name: datasets.Value(kinds[kind]) for name, kind in columns.items()})
    with tempfile.TemporaryDirectory() as cache:
        made = datasets.Dataset.from_generator(
            _samples, features=features, cache_dir=cache, gen_kwargs={"folder": folder, "columns": columns}
        )
        made.save_to_disk(target, num_shards=4)


def _cache_by_lading(folder: str, columns: dict[str, str]) -> None:
    import lading.caches
    from lading._core.features.types import Text, Value

    if os.path.exists(f"{folder}-cache"):
        return
    kinds = {"int": Value("int64"), "str": Text()}
    features = {name: kinds[kind] for name, kind in columns.items()}
    lading.caches.write_cache(_samples(folder, columns), features, f"{folder}-cache")


def _without_bytes(source: str, folder: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(os.path.join(source, "*.parquet")):
        target = os.path.join(folder, os.path.basename(path))
        if not os.path.exists(target):
            table = pq.read_table(path)
            at = table.schema.get_field_index("binary_content")
            nothing = pa.nulls(len(table), table.schema.field(at).type)
            pq.write_table(table.set_column(at, table.schema.field(at), nothing), target)


if __name__ == "__main__":
    main()
