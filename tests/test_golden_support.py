"""The comparer itself, tried with values whose digests the golden files hold."""

from __future__ import annotations

import hashlib
import io
import math
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from golden_cases import Golden, case_names, load_spec, load_views
from golden_compare import compare, compare_samples


def _samples_by_tarfile(folder: Path, shards: list[str]) -> Iterator[dict[str, Any]]:
    """Samples as Python's own tarfile gives them, for cases whose members have plain names."""
    for shard in shards:
        samples = {}
        with tarfile.open(folder / shard) as tar:
            for member in tar:
                key, field = member.name.split(".", 1)
                samples.setdefault(key, {"__key__": key})[field.lower()] = tar.extractfile(member).read()
        yield from samples.values()


@pytest.mark.parametrize("case", ["shards", "tarwriter-gz", "across-shards", "encoders"])
def test_samples_that_tarfile_reads_are_those_expected(golden: Golden, case: str) -> None:
    (view,) = load_views(golden("wds") / case)
    assert compare_samples(view.samples, _samples_by_tarfile(view.folder, view.open["shards"])) == []


def test_changed_missing_and_extra_samples_show(golden: Golden) -> None:
    (view,) = load_views(golden("wds") / "shards")
    samples = list(_samples_by_tarfile(view.folder, view.open["shards"]))
    assert "expected, but not read" in compare_samples(view.samples, samples[:-1])[0]
    assert "read, but not expected" in compare_samples(view.samples, [*samples, {}])[0]
    changed = [{**samples[0], "jpg": b"no jpeg"}, *samples[1:]]
    assert any("sample 0.jpg" in text for text in compare_samples(view.samples, changed))
    assert "unexpected fields ['more']" in compare_samples(view.samples, [{**samples[0], "more": b""}])[0]


def test_every_family_has_the_cases_its_archive_names(golden: Golden) -> None:
    for family in ("wds", "interleaved", "hostile-wds", "hostile-interleaved-tar", "hostile-interleaved-parquet"):
        assert case_names(family) == tuple(sorted(path.name for path in golden(family).iterdir()))
        assert all(load_spec(golden(family) / case)["format"] for case in case_names(family))


@pytest.mark.parametrize(
    "want,equal,unequal",
    [
        ({"kind": "null"}, None, 0),
        ({"kind": "nonnull"}, 0, None),
        ({"kind": "bool", "value": True}, np.True_, 1),
        ({"kind": "int", "value": "18446744073709551615"}, np.uint64(2**64 - 1), 2.0**64),
        ({"kind": "float", "bits": "8000000000000000", "value": "-0.0"}, -0.0, 0.0),
        ({"kind": "float", "bits": "7ff8000000000000", "value": "nan"}, math.nan, 0.0),
        ({"kind": "json", "canonical": "null", "sha256": "", "length": 4}, None, 1),
        ({"kind": "list", "items": [{"kind": "int", "value": "1"}]}, np.array([1]), [1, 2]),
        ({"kind": "struct", "fields": {"a": {"kind": "bool", "value": False}}}, {"a": False}, {}),
    ],
)
def test_scalars(want: dict[str, Any], equal: object, unequal: object) -> None:
    assert compare(want, equal) == []
    assert len(compare(want, unequal)) == 1


def test_pictures_may_come_as_bytes_or_decoded() -> None:
    out = io.BytesIO()
    Image.new("RGB", (1, 1)).save(out, "PNG")
    pixels = {"kind": "image", "mode": "RGB", "size": [1, 1], "pixels_sha256": hashlib.sha256(bytes(3)).hexdigest()}
    want = {"kind": "encoded", "sha256": hashlib.sha256(out.getvalue()).hexdigest(), "length": 9, "image": pixels}
    for equal in (out.getvalue(), {"bytes": out.getvalue(), "path": None}, Image.new("RGB", (1, 1))):
        assert compare(want, equal) == []
    for unequal in (b"other", Image.new("RGB", (2, 1)), Image.new("L", (1, 1)), 5):
        assert len(compare(want, unequal)) == 1
    assert compare({**want, "sha256": "", "reencoded": True}, out.getvalue()) == []
