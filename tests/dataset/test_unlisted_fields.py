"""Steps on fields of documents that `fields` leaves out give the samples that plain Python chooses, without the fields.

The table of cases computes each step over the list of documents as it was written.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from documents import SAMPLES, documents
from lading.errors import UsageError

_DOCUMENTS = [
    (f"{name}{i}", items, {"lang": "de" if i % 3 else "en", "url": f"u{i}", "n": (i * 5) % 7})
    for i in range(6)
    for name, items, _ in SAMPLES[:3]
]
_RESERVED = (
    "sample_id", "position", "modality", "content_type", "text_content", "binary_content", "source_ref",
    "materialize_error",
)  # fmt: skip
SOURCES = ["tar", "webdataset", "parquet", "mds"]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The documents in a format that lading wrote, with its manifest; or in a tar alone."""
    (tmp_path / "docs.tar").write_bytes(documents(*_DOCUMENTS))
    if request.param == "tar":
        return tmp_path / "docs.tar"
    lading.convert(tmp_path / "docs.tar", tmp_path / "in", format=request.param)
    return tmp_path / "in"


_Facts = list[tuple[str, dict[str, Any]]]
_FACTS: _Facts = [(name, facts) for name, _, facts in _DOCUMENTS]
_TABLE = pa.table({"number": [0, 3], "score": [0.5, 0.25]})
_CASES: list[tuple[Callable[[lading.Dataset], lading.Dataset], Callable[[_Facts], _Facts]]] = [
    (lambda ds: ds.where("lang == 'en'"), lambda all_: [each for each in all_ if each[1]["lang"] == "en"]),
    (
        lambda ds: ds.where("lang == 'de'").where("n > 2 and url != 'u1'"),
        lambda all_: [e for e in all_ if e[1]["lang"] == "de" and e[1]["n"] > 2 and e[1]["url"] != "u1"],
    ),
    (lambda ds: ds.sort("n"), lambda all_: sorted(all_, key=lambda each: each[1]["n"])),
    (
        lambda ds: ds.dedup(by=["n", "lang"]),
        lambda all_: list({(e[1]["n"], e[1]["lang"]): e for e in reversed(all_)}.values())[::-1],
    ),
    (
        lambda ds: ds.join(_TABLE, on={"n": "number"}, how="inner"),
        lambda all_: [e for e in all_ if e[1]["n"] in (0, 3)],
    ),
    (lambda ds: ds.limit(9).where("n == 5"), lambda all_: [e for e in all_[:9] if e[1]["n"] == 5]),
    (lambda ds: ds.take_keys([4, 3], by="n"), lambda all_: [e for n in (4, 3) for e in all_ if e[1]["n"] == n]),
]


@pytest.mark.cases(4)
def test_fields_that_steps_need_are_read_and_dropped(source: Path) -> None:
    for step, chosen in _CASES:
        with lading.open(source, fields=["url"]) as ds:
            found, right = step(ds), chosen(_FACTS)
            assert [sample["sample_id"] for sample in found] == [name for name, _ in right]
            assert len(found) == len(right)
            columns = [*_RESERVED, "url", *(["score"] if "score" in found.columns else [])]
            assert found.columns == columns
            assert {tuple(batch.schema.names) for batch in found.batches()} == {tuple(columns)}
            assert {sample["url"] for sample in found} == {facts["url"] for _, facts in right}
            assert len([*pickle.loads(pickle.dumps(found))]) == len(right)


@pytest.mark.cases(4)
def test_the_columns_are_those_that_are_asked_for(source: Path) -> None:
    with lading.open(source, fields=["url"]) as ds:
        assert ds.columns == [*_RESERVED, "url"] == next(ds.batches()).schema.names
        renamed = ds.where("lang == 'en'").rename({"url": "lang"})
        assert [sample["lang"] for sample in renamed] == [f["url"] for _, f in _FACTS if f["lang"] == "en"]
        assert ds.where("lang == 'en'").where("n == 0").query.steps[-1].columns == ("lang", "n")
    with lading.open(source) as ds:
        some = [*ds.where("lang == 'en'").batches(fields=["url"])]
        assert {name for batch in some for name in batch["sample_id"].to_pylist()} == {
            name for name, facts in _FACTS if facts["lang"] == "en"
        }
        assert some[0].schema.names == [*_RESERVED, "url"]


@pytest.mark.cases(4)
def test_a_conversion_reads_and_drops_them_too(source: Path, tmp_path: Path) -> None:
    right = [name for name, facts in _FACTS if facts["lang"] == "en"]
    lading.convert(source, tmp_path / "a", format="parquet", fields=["url"], where="lang == 'en'")
    lading.convert(lading.open(source, fields=["url"]), tmp_path / "b", format="parquet", where="lang == 'en'")
    for folder in "ab":
        with lading.open(tmp_path / folder) as ds:
            assert [sample["sample_id"] for sample in ds] == right
            assert ds.columns == [*_RESERVED, "url"]


@pytest.mark.cases(4)
def test_a_field_that_no_document_has_is_an_error(source: Path, tmp_path: Path) -> None:
    ds = lading.open(source, fields=["url"])
    uses: list[Callable[[], object]] = [
        lambda: [*ds.where("lan == 'en'")],
        lambda: [*ds.sort("lan")],
        lambda: [*ds.dedup(by="lan")],
        lambda: ds.split({"a": 0.5, "b": 0.5}, by="lan"),
        lambda: lading.convert(source, tmp_path / "no", format="parquet", fields=["url"], where="lan == 'en'"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the field is null
        for use in uses:
            with pytest.raises(UsageError, match=r"no such column.* found 'lan'. Did you mean lang\?"):
                use()
