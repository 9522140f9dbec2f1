"""What a notebook shows: datasets, their first samples and columns, whatever the data hold."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import shutil
import wave
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.content.preview import Truncated, table_html
from lading._core.dataset.sample_list import SampleList
from lading._core.units import format_bytes
from lading.errors import DataError, UsageError
from lading.features import ClassLabel, with_feature

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "' onmouseover='alert(3)' x='",
    '" autofocus onfocus="alert(4)',
    "</td></table><iframe src=javascript:alert(5)>",
    "\u202e\x00\x1b[31m\ud800",
    "&lt;b&gt;",
)
_TAGS = {"div", "table", "thead", "tbody", "tr", "th", "td", "b", "i", "p", "code", "small", "br", "span", "ol", "li",
         "img", "audio"}  # fmt: skip
_ATTRIBUTES = {"style", "src", "controls", "preload"}


class _Checked(HTMLParser):
    """Holds a page to the tags and attributes that lading writes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.uris: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _TAGS
        for name, value in attrs:
            assert name in _ATTRIBUTES
            if name == "src":
                assert re.fullmatch(r"data:(image/(png|jpeg)|audio/[a-z0-9]+);base64,[A-Za-z0-9+/=]+", value or "")
                self.uris.append(str(value))

    def handle_data(self, data: str) -> None:
        self.text += data


@cache
def _picture(kind: str = "JPEG", size: tuple[int, int] = (640, 480), mode: str = "RGB", *, number: int = 0) -> bytes:
    """Return noise, made once for each number."""
    made = io.BytesIO()
    Image.effect_noise(size, 90).convert(mode).save(made, kind)
    return made.getvalue()


def _sound(seconds: float) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(np.zeros(int(seconds * 32_000), "<i2").tobytes())
    return made.getvalue()


@pytest.fixture
def mixed(tmp_path: Path) -> Any:
    with lading.writer(tmp_path / "mixed", format="webdataset") as writer:
        for number in range(12):
            writer.write({
                "__key__": f"k{number}", "jpg": _picture(number=number),
                "png": _picture("PNG", (30, 200), "RGBA", number=number),
                "wav": _sound(3), "txt": f"{HOSTILE[number % 5]} {number}", "cls": number,
                "json": {"lang": ("en", "de")[number % 2], "x": [HOSTILE[0]], "score": number / 4},
            })  # fmt: skip
    with lading.open(tmp_path / "mixed") as ds:
        yield ds


@pytest.fixture
def docs() -> str:
    return str(resources.files("lading._core.data") / "docs-00000.tar")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_data_becomes_html(text: str) -> None:
    class Odd:
        def __repr__(self) -> str:
            return text

    values = {"t": text, "d": {text: [text, {text: text}]}, "b": text.encode("utf-8", "replace"), "o": Odd(), text: 1,
              "items": [{"text_content": text}, {"modality": text}]}  # fmt: skip
    page = table_html([values])
    page.encode()
    checked = _Checked(page)
    assert not checked.uris
    assert all(character not in page for character in "\x00\x1b\u202e")
    assert SampleList([values])._repr_html_() == page


def test_hostile_names_of_columns_and_files(tmp_path: Path) -> None:
    name = "<script>alert(1)<,script>.parquet"
    pq.write_table(pa.table({HOSTILE[1]: [1], "<b>": [HOSTILE[0]]}), tmp_path / name)
    checked = _Checked(lading.open(tmp_path / name)._repr_html_())
    assert HOSTILE[0] in checked.text


@pytest.mark.soak
def test_a_dataset_shows_its_first_samples(mixed: Any) -> None:
    checked = _Checked(mixed._repr_html_())
    assert [name for name in mixed.columns if name not in checked.text] == []
    assert "k0" in checked.text
    assert "k4" in checked.text
    assert "k5" not in checked.text
    assert "640×480 jpeg" in checked.text
    pictures = [base64.b64decode(uri.partition(",")[2]) for uri in checked.uris if uri.startswith("data:image")]
    assert len(pictures) == 10
    sizes = {Image.open(io.BytesIO(data)).size for data in pictures}
    assert sizes == {(96, 72), (14, 96)}
    assert len(mixed._repr_html_()) < 220_000


def test_repr_says_samples_columns_and_sizes(mixed: Any) -> None:
    shown = repr(mixed)
    size = sum(shard.get_raw_size() for shard in mixed.shards)
    for part in ("samples  12", "jpg      image", "txt      text", "json     json", f"size     {format_bytes(size)}"):
        assert part in shown


def test_head_is_a_list_that_reads_well(mixed: Any) -> None:
    head = mixed.head(3)
    assert isinstance(head, list)
    assert [sample["__key__"] for sample in head] == ["k0", "k1", "k2"]
    assert mixed.select("txt", "json").head(2) == [mixed.select("txt", "json")[i] for i in range(2)]
    shown = repr(head)
    assert shown.count("<image 640×480 jpeg") == 3
    assert "\\xff" not in shown
    assert len(shown) < 4000
    assert "640×480 jpeg" in _Checked(head._repr_html_()).text
    assert len(_Checked(head._repr_html_()).uris) >= 6
    assert repr(mixed.with_decode(False).head(3)) == shown


def test_head_shows_an_image_that_cannot_be_opened_with_its_error(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "some", format="webdataset") as writer:
        writer.write({"__key__": "a", "jpg": _picture(), "txt": "good"})
        writer.write({"__key__": "b", "jpg": b"\xff\xd8\xff\xe0 cut", "txt": "bad"})
    with lading.open(tmp_path / "some") as ds:
        head = ds.head()
        assert [sample["txt"] for sample in head] == ["good", "bad"]
        assert head[0]["jpg"].size == (640, 480)
        broken = pickle.loads(pickle.dumps(head))[1]["jpg"]
        assert broken == b"\xff\xd8\xff\xe0 cut"
        assert broken.error.message == "the image cannot be opened"
        assert "<broken file, 8 B: the image cannot be opened>" in repr(head)
        page = _Checked(head._repr_html_())
        assert len(page.uris) == 1
        assert "broken file, 8 B: the image cannot be opened" in page.text
        with pytest.raises(DataError, match="sample 'b' column 'jpg'"):
            ds[1]


def test_behind_map_the_columns_that_it_adds_to_are_shown(mixed: Any) -> None:
    shown = repr(mixed.rename({"txt": "caption"}).map(lambda sample: {"n": len(sample["caption"])}))
    assert "    caption  text\n" in shown
    assert "    …        and what map() returns\n" in shown
    assert "    …  what map_batches() returns\n" in repr(mixed.map_batches(lambda batch: batch))


def test_slices_and_conditions_show_samples_too(mixed: Any) -> None:
    assert "k2" in _Checked(mixed[2:4]._repr_html_()).text
    assert "k1" in _Checked(mixed[[1, 3]]._repr_html_()).text
    assert "k6" in _Checked(mixed.where("cls > 5")._repr_html_()).text


def test_a_function_is_not_called_to_show_a_dataset(mixed: Any) -> None:
    def fail(batch: pa.RecordBatch) -> Any:
        raise AssertionError("called")

    for ds in (mixed.filter(fail), mixed.map(fail), mixed.shuffle(0)):
        assert "ds.head()" in _Checked(ds._repr_html_()).text
    repr(mixed.filter(fail))


def test_a_dataset_that_cannot_be_read_shows_its_error(mixed: Any) -> None:
    [shard] = mixed.shards
    with lading.open(shard.path) as ds:
        Path(shard.path).unlink()
        assert "no such file" in _Checked(ds._repr_html_()).text


@pytest.mark.soak
def test_documents_show_their_texts_and_images(docs: str) -> None:
    checked = _Checked(lading.open(docs)._repr_html_())
    assert any(uri.startswith("data:image") for uri in checked.uris)
    assert _Checked(lading.open(docs).head(2)._repr_html_()).uris


def test_large_and_broken_values_are_described(tmp_path: Path) -> None:
    values = {
        "broken": b"\x89PNG\r\n\x1a\n" + b"\0" * 50,
        "cut": Truncated(_picture()[:5000], 123_000_000),
        "empty": b"",
    }
    checked = _Checked(table_html([values]))
    assert not checked.uris
    assert "117 MB" in checked.text
    rows = [{"png": _picture("PNG", (300, 300)), "text": "x" * 10_000} for _ in range(300)]
    assert len(table_html(rows)) < 400_000


def test_labels_show_their_names(tmp_path: Path) -> None:
    field = with_feature(pa.field("label", pa.int64()), ClassLabel(["cat", "<b>"]))
    pq.write_table(pa.table([[0, 1, 7]], pa.schema([field])), tmp_path / "a.parquet")
    for page in (
        lading.open(tmp_path / "a.parquet")._repr_html_(),
        lading.open(tmp_path / "a.parquet").head()._repr_html_(),
    ):
        assert "cat" in _Checked(page).text


def test_a_column_gives_the_values_of_samples(mixed: Any) -> None:
    expected = [sample["txt"] for sample in mixed]
    column = mixed["txt"]
    assert (list(column), len(column), column[3], column[-1]) == (expected, 12, expected[3], expected[-1])
    assert (column[2:5], column[[4, 1]], column[np.array([0])]) == (
        expected[2:5],
        [expected[4], expected[1]],
        expected[:1],
    )
    assert column.to_pylist() == expected
    assert column.to_arrow().to_pylist() == expected
    with pytest.raises(IndexError):
        column[12]


def test_columns_of_a_plain_tar_have_the_types_of_their_names(mixed: Any, tmp_path: Path) -> None:
    [shard] = mixed.shards
    plain = lading.open(shutil.copy(shard.path, tmp_path / "plain.tar"))
    assert plain["txt"].to_arrow().to_pylist() == list(mixed["txt"])
    assert plain["cls"].to_numpy().tolist() == [*range(12)]
    assert plain["jpg"].to_arrow().to_pylist() == [sample["jpg"] for sample in mixed.samples(raw=True)]


def test_fields_inside_columns(mixed: Any) -> None:
    documents = [sample["json"] for sample in mixed]
    assert list(mixed["json.lang"]) == [each["lang"] for each in documents]
    assert mixed["json.score"][5] == documents[5]["score"]
    assert mixed["json.score"][:3] == [each["score"] for each in documents[:3]]
    assert mixed["json.score"].to_numpy().tolist() == [each["score"] for each in documents]
    assert np.asarray(mixed["jpg.width"]).tolist() == [640] * 12
    assert pa.chunked_array(mixed["json.score"]).to_pylist() == [each["score"] for each in documents]


def test_a_column_that_is_missing_is_an_error(mixed: Any, docs: str) -> None:
    with pytest.raises(UsageError, match=r"no such column.*Did you mean txt"):
        mixed["text"]
    with pytest.raises(UsageError, match="items"):
        lading.open(docs)["text_content"]
    assert mixed._ipython_key_completions_() == mixed.columns


def test_a_column_shows_its_first_values(mixed: Any) -> None:
    head = "lading.Column: cls\n  type     int64\n  samples  12\n  values\n"
    assert repr(mixed["cls"]) == f"{head}    0\n    1\n    2\n    3\n    4\n    …"
    assert repr(mixed[5:10]["txt"]).splitlines()[1:] == [
        "  type     text",
        "  samples  5",
        "  values",
        *(f"    {sample['txt']!r}" for sample in mixed[5:10]),
    ]
    assert repr(mixed["jpg"]).count("\n    <image 640×480 jpeg") == 5
    assert json.loads(json.dumps(mixed["json"][0])) == mixed[0]["json"]


def test_a_field_inside_a_column_shows_its_first_values(mixed: Any) -> None:
    shown = repr(mixed["json.lang"]).splitlines()
    assert shown[0] == "lading.Column: json.lang"
    assert shown[-6:] == ["    'en'", "    'de'", "    'en'", "    'de'", "    'en'", "    …"]
    assert repr(mixed.where("cls > 9")["json.score"]).splitlines()[-2:] == ["    2.5", "    2.75"]
    assert "12 before the steps" in repr(mixed.where("cls > 9")["cls"])


def test_a_notebook_shows_a_column_with_thumbnails_and_players(mixed: Any) -> None:
    pictures, sounds = _Checked(mixed["jpg"]._repr_html_()), _Checked(mixed["wav"]._repr_html_())
    assert [uri.partition(";")[0] for uri in pictures.uris] == ["data:image/jpeg"] * 5
    assert sounds.uris
    assert all(uri.startswith("data:audio/wav") for uri in sounds.uris)
    texts = _Checked(mixed["txt"]._repr_html_())
    assert not texts.uris
    assert HOSTILE[0] in texts.text
    assert "samples12" in texts.text
    assert mixed["jpg"]._repr_html_().count("<img") == mixed.select("jpg").head()._repr_html_().count("<img") == 5


def test_no_function_is_called_to_show_a_column(mixed: Any) -> None:
    def fail(sample: Any) -> Any:
        raise AssertionError("called")

    for ds in (mixed.filter(fail), mixed.shuffle(0)):
        for name in ("txt", "json.lang"):
            assert f"ds[{name!r}][:5] reads the first values." in repr(ds[name])
            assert f"ds[{name!r}][:5] reads the first values." in _Checked(ds[name]._repr_html_()).text


def test_a_column_that_cannot_be_read_shows_its_error(mixed: Any) -> None:
    [shard] = mixed.shards
    with lading.open(shard.path) as ds:
        columns = ds["txt"], ds["json.lang"]
        Path(shard.path).unlink()
        for column in columns:
            assert "no such file" in repr(column)
            assert "no such file" in _Checked(column._repr_html_()).text


def test_names_of_data_control_no_terminal(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a\u202eb\x1b[31m": [1]}), tmp_path / "a.parquet")
    dataset = lading.open(tmp_path / "a.parquet")
    for text in (repr(dataset), dataset._repr_html_()):
        assert r"a\u202eb\x1b[31m" in text
        assert not {"\u202e", "\x1b"}.intersection(text)
