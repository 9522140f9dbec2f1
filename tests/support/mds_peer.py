"""mosaicml-streaming in a process of its own: `python mds_peer.py` does what each line of standard input asks.

A line is `read FILE`, `write FILE` or `fetch FILE`, a pickle in, a pickle out; its answer is a line with what went
wrong, or an empty one. Each is done by a fork, since the peer keeps state, and takes ten seconds to import. It imports
torchvision and transformers for datasets that nobody here opens.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from replacements import replacement


def main() -> None:
    replacement("torchvision", "transformers")
    import streaming  # noqa: F401 - here, once, for all forks

    for line in sys.stdin:
        read, told = os.pipe()
        if not os.fork():
            verb, file = line.split(maxsplit=1)
            os.dup2(2, 1)  # what the peer prints is no answer
            try:
                _do(verb, Path(file.rstrip("\n")))
            except BaseException:  # noqa: BLE001 - whatever it is, whoever asked is told
                os.write(told, repr(traceback.format_exc()).encode())
            return  # it ends as processes do: the peer gives its shared memory back then
        os.close(told)
        with os.fdopen(read, "rb") as answer:
            sys.stdout.write(answer.read().decode() + "\n")
            sys.stdout.flush()
        _, status = os.wait()
        assert status == 0, status


def _do(verb: str, file: Path) -> None:
    from streaming import CSVWriter, JSONWriter, MDSWriter, StreamingDataset, TSVWriter, XSVWriter

    writers = {"mds": MDSWriter, "json": JSONWriter, "csv": CSVWriter, "tsv": TSVWriter, "xsv": XSVWriter}
    spec = pickle.loads(file.read_bytes())
    if verb == "write":
        for job in spec:
            with writers[job.get("kind", "mds")](out=job["out"], columns=job["columns"], **job["options"]) as writer:
                for row in job["rows"]:
                    writer.write(row)
        return
    if verb == "fetch":
        file.write_bytes(pickle.dumps([_fetched(**job) for job in spec]))
        return
    found = []
    for folder in spec:
        dataset = StreamingDataset(local=folder, batch_size=1, validate_hash=None)
        found.append([dataset[i] for i in range(len(dataset))])
    file.write_bytes(pickle.dumps(found))


def _fetched(remote: str, local: str, keep_zip: bool, validate_hash: str | None) -> list[Any]:
    """Each shard fetched, read and evicted: change of bytes, files then, sizes, samples, bytes freed, files left."""
    from streaming import Stream
    from streaming.base.world import World

    stream = Stream(remote=remote, local=local, keep_zip=keep_zip, validate_hash=validate_hash, download_retry=1,
                    download_timeout=60)  # fmt: skip
    stream.safe_keep_zip = keep_zip
    found = []
    for shard in stream.get_shards(World.detect(), allow_unsafe_types=True):
        delta, there = stream.prepare_shard(shard), sorted(os.listdir(local))
        sizes = (shard.get_raw_size(), shard.get_zip_size(), shard.get_max_size(),
                 shard.get_persistent_size(keep_zip))  # fmt: skip
        found.append((delta, there, sizes, list(shard), shard.evict(), sorted(os.listdir(local))))
    return found


if __name__ == "__main__":
    main()
