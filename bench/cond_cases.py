"""Filters: keep few samples of tars by a field of their JSON."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable

from harness import Case, Done, Place

_SEVEN = r"[02468]7\.jpg$"
"""Ends of URLs: one of twenty samples has one."""


def _by_webdataset(place: Place) -> Callable[[], Done]:
    import webdataset

    paths, seven = place.files("images/*.tar"), re.compile(_SEVEN)

    def keeps(sample: dict) -> bool:
        return seven.search(json.loads(sample["json"])["url"]) is not None

    def work() -> Done:
        samples = size = 0
        stages = webdataset.SimpleShardList(paths), webdataset.tarfile_to_samples(), webdataset.select(keeps)
        for sample in webdataset.DataPipeline(*stages):
            samples += 1
            size += len(sample["jpg"]) + len(sample["json"])
        return Done(samples, size)

    return work


def _samples_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    paths = place.files("images/*.tar")

    def work() -> Done:
        samples = size = 0
        for sample in lading.open(paths).where(f"matches(json.url, r'{_SEVEN}')").samples(raw=True):
            samples += 1
            size += len(sample["jpg"]) + len(sample["json"])
        return Done(samples, size)

    return work


def _limit(place: Place) -> Callable[[], Done]:
    """The bytes of each JSON, and the pictures that are kept, from known places."""
    ranges = []
    samples = size = 0
    for path in place.files("images/*.tar"):
        with tarfile.open(path, "r:") as tar:
            members = list(tar)
            for picture, meta in zip(members[::2], members[1::2], strict=True):
                ranges.append((path, meta.offset_data, meta.size))
                if re.search(_SEVEN, json.loads(tar.extractfile(meta).read())["url"]):
                    ranges.append((path, picture.offset_data, picture.size))
                    samples, size = samples + 1, size + picture.size + meta.size

    def work() -> Done:
        files = {path: os.open(path, os.O_RDONLY) for path, *_ in ranges}
        for path, at, length in ranges:
            os.pread(files[path], length, at)
        for file in files.values():
            os.close(file)
        return Done(samples, size)

    return work


CASES = [
    Case(
        "filter by JSON",
        "images/*.tar",
        peer="webdataset, select",
        limit="pread",
        ways={"webdataset, select": _by_webdataset, "lading, where": _samples_by_lading, "pread": _limit},
    )
]
