"""The steps that read and write datasets of any format in a pipeline of datatrove."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading.compat.datatrove import Document, LadingReader, LadingWriter, Media
from lading.errors import DataError, DestinationExists, UsageError

KEYS: Any = {"text_key": "txt", "id_key": "__key__"}
BARE: Any = {"add_file_path": False}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos") / "photos"
    with lading.writer(folder, format="webdataset", shard_size="50kb") as writer:
        for n in range(40):
            writer.write({"__key__": f"{n:03}", "jpg": bytes([n]) * 4000, "txt": f"é {n}", "cls": n, "json": {"n": n}})
    return folder


def through(reader: LadingReader, writer: LadingWriter, tasks: int) -> list[Any]:
    """The documents of a pipeline, whose steps each task gets as copies."""
    return [
        document
        for rank in range(tasks)
        for document in pickle.loads(pickle.dumps(writer))(copy.deepcopy(reader)(None, rank, tasks), rank, tasks)
    ]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["parquet", "webdataset", "mds", "jsonl", "arrow"])
def test_samples_are_documents_and_come_back_in_any_format(photos: Path, tmp_path: Path, target: str) -> None:
    source = photos if target != "jsonl" else lading.open(photos).drop("jpg")  # which holds no bytes
    documents = through(LadingReader(source, **KEYS, **BARE), LadingWriter(tmp_path / "out", target, **KEYS), 3)
    assert sorted((each.id, each.text) for each in documents) == [(f"{n:03}", f"é {n}") for n in range(40)]
    assert lading.digest(tmp_path / "out").unordered == lading.digest(source).unordered
    lading.merge(tmp_path / "out")
    assert lading.digest(tmp_path / "out").unordered == lading.digest(source).unordered


def test_a_column_of_bytes_is_a_media_and_the_rest_is_metadata(photos: Path) -> None:
    first = next(LadingReader(photos, **KEYS, **BARE)([]))
    assert (first.text, first.id, first.metadata) == ("é 0", "000", {"cls": 0, "json": {"n": 0}})
    assert [(each.id, each.type, each.media_bytes) for each in first.media] == [("jpg", 0, bytes(4000))]


def test_each_task_reads_its_shards_behind_the_steps_and_behind_other_documents(photos: Path) -> None:
    ds = lading.open(photos).where("json.n >= 7").select("txt")
    shards = [[sample["__key__"] for sample in shard] for shard in ds.shards]
    assert len(shards) > 2
    earlier = Document("", "earlier")
    for rank in range(2):
        found = [each.id for each in LadingReader(ds, **KEYS)([earlier], rank, 2)]
        assert found == ["earlier", *(key for shard in shards[rank::2] for key in shard if key >= "007")]


def test_a_document_without_an_id_is_named_by_its_file_and_number(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "rows.parquet") as writer:
        writer.write_batch(pa.table({"text": ["a", None]}))
    found = [(each.id, each.text) for each in LadingReader(str(tmp_path / "rows.parquet"))(None)]
    assert found == [(f"{tmp_path}/rows.parquet/0", "a"), (f"{tmp_path}/rows.parquet/1", "")]


@pytest.mark.parametrize("target", ["parquet", "webdataset", "mds"])
def test_interleaved_documents_keep_text_media_and_metadata(docs: Path, tmp_path: Path, target: str) -> None:
    documents = through(LadingReader(docs, **BARE), LadingWriter(tmp_path / "out", target, view="interleaved"), 3)
    ds = lading.open(docs).with_decode(False)
    assert {each.id for each in documents} == {sample["sample_id"] for sample in ds}
    for document, sample in zip(sorted(documents, key=lambda each: each.id),
                                sorted(ds, key=lambda each: each["sample_id"]), strict=True):  # fmt: skip
        items = sample.pop("items")
        texts = [item["text_content"] for item in items if item["modality"] == "text"]
        assert document.text == "\n\n".join(texts)
        assert [each.media_bytes for each in document.media] == [
            item["binary_content"] for item in items if item["modality"] == "image"
        ]
        assert {"sample_id": document.id, **document.metadata} == sample
    back = {each.id: each for each in LadingReader(tmp_path / "out", **BARE)(None)}
    assert back == {each.id: each for each in documents}


def test_a_task_that_runs_again_replaces_its_shards_and_one_that_fails_writes_none(tmp_path: Path) -> None:
    def failing() -> Any:
        yield Document("a", "0")
        raise RuntimeError

    for text in ("first", "again"):
        list(LadingWriter(tmp_path / "out")([Document(text, "0")], 3, 4))
    with pytest.raises(RuntimeError):
        list(LadingWriter(tmp_path / "out")(failing(), 2, 4))
    assert [row["text"] for row in lading.open(tmp_path / "out")] == ["again"]
    lading.merge(tmp_path / "out")
    with pytest.raises(DestinationExists):
        list(LadingWriter(tmp_path / "out")([Document("late", "0")], 1, 4))


def test_what_no_sample_can_hold_is_refused(tmp_path: Path) -> None:
    for document, view, found in (
        (Document("a", "x", metadata={"text": "b"}), "samples", "one name; sample 'x'.*column 'text'"),
        (Document("a", "x", media=[Media("m", 0, "") ]), "samples", "no bytes"),
        (Document("a", "x", media=[Media("m", 9, "", media_bytes=b"1")]), "interleaved", "unknown type"),
        (Document("a", "x", metadata={"position": 1}), "interleaved", "name of a column of items"),
    ):  # fmt: skip
        with pytest.raises(DataError) as raised:
            list(LadingWriter(tmp_path / "out", view=view)([document]))
        assert raised.value.sample == "x"
        assert raised.match(found.split(";")[0])
    assert [*tmp_path.iterdir()] == []


def test_steps_over_all_samples_are_refused(photos: Path) -> None:
    with pytest.raises(UsageError, match=r"limit\(3\)"):
        LadingReader(lading.open(photos).limit(3))


@pytest.mark.parametrize(
    "given, found",
    [
        ({"recursive": False}, "glob_pattern"),
        ({"compression": "gzip"}, "the bytes of a file tell"),
        ({"data_folder": "x"}, "as the source"),
        ({"limits_": 3}, "no argument limits_. Did you mean limits"),
    ],
)
def test_arguments_without_a_meaning_are_refused_when_the_step_is_made(given: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        LadingReader("nowhere", **given)


def test_files_below_a_dataset_and_arguments_of_one_that_is_open_are_refused(photos: Path) -> None:
    for given, found in (({"glob_pattern": "*.tar"}, "below a folder"), ({"format": "mds"}, "is open already")):
        with pytest.raises(UsageError, match=found):
            LadingReader(lading.open(photos), **given)
    with pytest.raises(UsageError, match="below a folder"):
        LadingReader([photos], paths_file="names.txt")  # type: ignore[list-item] # any source


@pytest.mark.parametrize(
    "given, found", [({"compression": "gzip"}, "options="), ({"max_file_size": 9}, "shard_size"), ({"nmae": 1}, "nmae")]
)
def test_arguments_that_no_writer_takes_are_refused_when_the_step_is_made(given: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        LadingWriter("nowhere", **given)


def test_an_adapter_makes_documents_of_samples_also_in_copies(photos: Path, docs: Path) -> None:
    reader = LadingReader(photos, limit=1, adapter=_by_adapter)
    for step in (reader, copy.deepcopy(reader), pickle.loads(pickle.dumps(reader))):
        [made] = step.run(None)
        assert (made.text, made.id, made.media[0].media_bytes) == ("é 0", "shard-000000.tar:0", bytes(4000))
    [first] = LadingReader(docs, limit=1, adapter=lambda _, data, *__: {"text": "", "id": data["sample_id"]}).run()
    assert first.id == lading.open(docs)[0]["sample_id"]
    with pytest.raises(UsageError, match="the adapter gave no document"):
        list(LadingReader(photos, adapter=lambda *_: {"text": "a"}).run())


def _by_adapter(_: Any, data: dict[str, Any], path: str, number: int) -> dict[str, Any]:
    media = [Media("0", 0, "", media_bytes=data["jpg"])]
    return {"text": data["txt"], "id": f"{path}:{number}", "media": media}


def test_a_limit_counts_the_documents_of_a_task_behind_the_steps_of_a_dataset(photos: Path) -> None:
    ds = lading.open(photos).where("json.n >= 7").select("txt")
    for rank in range(2):
        every = [each.id for each in LadingReader(ds, **KEYS).run(None, rank, 2)]
        assert [each.id for each in LadingReader(ds, **KEYS, limit=5, skip=2).run(None, rank, 2)] == every[2:7]


@pytest.mark.parametrize("given, told", [
    ({"limit": "3"}, "limit='3'"),
    ({"skip": -1}, "skip=-1"),
    ({"limt": 3}, r"LadingReader\(\) has no argument limt. Did you mean limit"),
])  # fmt: skip
def test_wrong_arguments_are_refused_when_a_reader_is_made(photos: Path, given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        LadingReader(photos, **given)


def test_arguments_after_the_source_are_given_by_name(photos: Path) -> None:
    with pytest.raises(UsageError, match=r"given by name; found \('txt', 100\).*limit="):
        LadingReader(photos, "txt", 100)


def test_a_chosen_key_that_names_no_column_warns(photos: Path, docs: Path) -> None:
    with pytest.warns(UserWarning, match="text_key='words' names no column, found .*txt"):
        assert next(LadingReader(photos, text_key="words").run()).text == ""
    with pytest.warns(UserWarning, match="id_key='name' names no column"):
        next(LadingReader(docs, id_key="name").run())


def test_media_in_archives_are_written_with_their_places(tmp_path: Path) -> None:
    places = [Media(str(at), 0, "u", "alt", "0.bin", at, 5, None, {"w": at}) for at in range(2)]
    given = [Document("a", "0", places, {"lang": "de"}), Document("b", "1", [])]
    for format_ in ("jsonl", "parquet"):
        list(LadingWriter(tmp_path / format_, format=format_).run(copy.deepcopy(given)))
        back = [*LadingReader(tmp_path / format_, add_file_path=False).run()]
        assert [(each.text, [(one.path, one.offset, one.metadata) for one in each.media]) for each in back] == [
            ("a", [("0.bin", at, {"w": at}) for at in range(2)]), ("b", []),
        ]  # fmt: skip
