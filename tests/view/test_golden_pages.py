"""Every golden dataset in the browser: what grid, list and sample show is what `ds[i]` gives."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
from PIL import Image, ImageOps

import lading
from browser import Tab, shown_in
from fuzz_targets import TARGETS, find_readings
from golden_cases import Golden, case_names
from lading._core.content.preview import described

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore::UserWarning")]

_T = TypeVar("_T")
_MOST = 4
"""Samples of a dataset that are opened."""

_READ_OUT = """() => [...document.querySelectorAll('article > section')].map((field) => ({
  name: field.dataset.column, kind: field.dataset.kind, text: field.querySelector('.value').textContent,
  tree: field.querySelector('.tree')?.textContent ?? null, hex: field.querySelector('.hex')?.textContent ?? null,
  told: [...field.querySelectorAll('.told')].map((told) => told.textContent),
  facts: field.querySelector('p.facts')?.textContent ?? null,
  items: [...field.querySelectorAll('section.item, ol.items > li')].map((item) => ({
    position: Number(item.dataset.position), text: item.querySelector('div.text')?.textContent ?? null,
    told: item.querySelector('.told')?.textContent ?? null, all: item.textContent })),
}))"""
_READY = """() => [...document.querySelectorAll('.hex')].every((hex) => hex.textContent !== '…')
  && [...document.querySelectorAll('figure.array')].every((array) => array.querySelector('a, .error'))"""


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "arrow_cache"])
def test_pages_show_the_samples(chromium: Browser, golden: Golden, target: str) -> None:
    for case, reading in find_readings(golden, target):
        with chdir(case), lading.open(reading.source, **reading.opening) as ds:
            _look_at(chromium, ds, f"{case.parent.name}/{case.name} {reading.source}")


@pytest.mark.parametrize("case", case_names("manifests"))
def test_pages_show_the_samples_of_manifests(chromium: Browser, golden: Golden, case: str) -> None:
    with lading.open(golden("manifests") / case / "data") as ds:
        _look_at(chromium, ds, case)


def test_pages_show_the_samples_of_a_mixed_cache(chromium: Browser, golden: Golden) -> None:
    with lading.open(golden("stable-older") / "mixed") as ds:
        _look_at(chromium, ds, "mixed")


def _look_at(chromium: Browser, ds: lading.Dataset, name: str) -> None:
    stored = ds.with_decode(False)
    with shown_in(chromium, ds) as tab:
        count, failure = _read(lambda: len(ds))
        if count is None:
            _says(tab, "page=grid", str(failure))
            return
        for page, element in (("grid", ".tile"), ("list", ".cells:not(.head)")):
            tab.open(f"page={page}", f"{element}:not(.waiting), .says")
            shown = tab.page.locator(f"{element}:not(.waiting)")
            if tab.page.locator(".says .error").count():
                failures = [_read(lambda i=i: stored[i])[1] for i in range(count)]
                assert set(tab.texts(".says .error")) & set(failures), name
                continue
            amount = "1 sample" if count == 1 else f"{count:,} samples"
            tab.until(f"document.getElementById('told').textContent === '{amount}'")
            assert (shown.count() > 0) == (count > 0), name
            for i, each in enumerate(shown.all()[:_MOST]):
                sample, failure = _read(lambda i=i: stored[i])
                assert (each.get_attribute("data-key"), failure) in (
                    (None if sample is None else _key(sample), None),
                    (None, each.text_content()),
                ), name
        for i in range(min(count, _MOST)):
            sample, failure = _read(lambda i=i: stored[i])
            if failure is not None:
                _says(tab, f"page=sample&number={i}", failure)
                continue
            tab.open(f"page=sample&number={i}", "article")
            _unfold(tab)
            fields = {field["name"]: field for field in tab.page.evaluate(_READ_OUT)}
            wanted = {column: value for column, value in sample.items() if column not in ("__key__", "sample_id")}
            assert set(wanted) <= set(fields), name
            for column, field in fields.items():  # a field that the sample lacks is null
                assert _differences(field, wanted.get(column)) == [], f"{name}, sample {i}, {column}"
        assert [text for text in tab.problems if "Failed to load resource" not in text] == [], name


def _read(read: Callable[[], _T]) -> tuple[_T, None] | tuple[None, str]:
    """What is read, or the words of the error."""
    try:
        return read(), None
    except lading.errors.LadingError as error:
        return None, str(error)


def _says(tab: Tab, query: str, failure: str) -> None:
    tab.open(query, ".says .error")
    assert failure in tab.texts(".says .error")


def _key(sample: Mapping[str, Any]) -> str | None:
    key = sample.get("__key__", sample.get("sample_id"))
    return None if key is None else str(key)


def _unfold(tab: Tab) -> None:
    for button in tab.page.get_by_role("button", name="Unfold all").all():
        button.click()
    tab.until(f"({_READY})()")


def _differences(field: Mapping[str, Any], value: Any) -> list[str]:
    """What is shown that is not so."""
    return [f"{field['kind']}: {told}" for told in _FIELDS[field["kind"]](field, value)]


def _null(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if value is not None or field["text"] != "null":
        yield f"{field['text']!r} for {value!r}"


def _text(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if field["text"] != str(value):  # a Decimal that is stored as text, too
        yield f"{field['text'][:200]!r} for {value!r:.200}"


def _value(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if field["text"] != str(value) and not field["text"].endswith(f" ({value})"):
        yield f"{field['text']!r} for {value!r}"


def _json(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    text = field["tree"] if field["tree"] is not None else field["text"]
    plain = json.dumps(value, default=_plain)
    if _same_json(json.loads(text)) != _same_json(json.loads(plain)):
        yield f"{text[:300]} for {plain[:300]}"


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else described(value) or str(value)


def _same_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _bytes(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if not isinstance(value, (bytes, Mapping)):  # MDS's images without a file, and lists of them
        return
    if field["hex"] is None:  # an archive of arrays, which are shown
        assert _data(value).startswith(b"PK")
        return
    data = _data(value)
    lines = [data[start : start + 16] for start in range(0, min(len(data), 512), 16)]
    shown = [line[6:53].split() for line in field["hex"].splitlines()]
    if shown != [[f"{byte:02x}" for byte in line] for line in lines]:
        yield f"{field['hex'][:200]} for {data[:40]!r}"


def _image(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    told = field["told"][0] if field["told"] else field["text"]
    if _size(_data(value)) not in told:
        yield f"{told!r} for {_size(_data(value))}"


def _size(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        width, height = ImageOps.exif_transpose(image).size
    return f"{width}×{height}"


def _medium(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if not field["told"] or not _data(value):
        yield field["text"]


def _array(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    array = np.asarray(value)
    told = f"{array.dtype} {'×'.join(map(str, array.shape)) or 'scalar'}"
    if not str(field["facts"]).startswith(told):
        yield f"{field['facts']!r} for {told}"


def _list(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if len(field["items"]) != len(value):
        yield f"{len(field['items'])} items for {len(value)}"
    for item, each in zip(field["items"], value, strict=False):
        if each is not None and item["told"] is not None and item["told"].startswith(("0", "1", "2")):
            yield from _image({"told": [item["told"]]}, each)


def _items(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if [item["position"] for item in field["items"]] != [item["position"] for item in value]:
        yield f"{field['items']} for {[item['position'] for item in value]}"
    for shown, item in zip(field["items"], value, strict=False):
        data = item.get("binary_content")
        if item.get("text_content") is not None:
            if shown["text"] != item["text_content"]:
                yield f"{shown['text']!r:.200} for {item['text_content']!r:.200}"
        elif data is None:
            if item["modality"] not in shown["all"]:
                yield f"{shown['all']!r} for a missing {item['modality']}"
        elif "×" in str(shown["told"]):
            yield from _image({"told": [shown["told"]]}, data)
        elif not shown["told"]:
            yield f"{shown['all']!r} for {len(data)} bytes"


def _data(value: Any) -> bytes:
    return bytes(value["bytes"] if isinstance(value, Mapping) else value)


def _error(field: Mapping[str, Any], value: Any) -> Iterator[str]:
    if not field["text"]:
        yield f"no words for {value!r}"


_FIELDS = {
    "null": _null, "text": _text, "value": _value, "json": _json, "bytes": _bytes, "image": _image, "audio": _medium,
    "video": _medium, "array": _array, "list": _list, "items": _items, "error": _error,
}  # fmt: skip
