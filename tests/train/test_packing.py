"""Packed sequences hold the tokens of an epoch, each once, wherever training stops."""

from __future__ import annotations

import json
from importlib import resources
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lading
from lading._core.train.packing import Packer
from lading._core.train.rows import PADDING
from lading.errors import DataError, FunctionError, UsageError

_COUNT, _END = 60, 9999
_METHODS = ("split", "best-fit")
_LENGTHS = [int(n) for n in np.random.default_rng(5).choice([0, 1, 2, 3, 5, 8, 13, 40], _COUNT)]
_DOCUMENTS = [[100 * i + j for j in range(length)] for i, length in enumerate(_LENGTHS)]
"""No token is in two documents."""


def _words(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def _tokens(text: str) -> list[int]:
    return [int(word) for word in text.split()]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name in ("parquet", "webdataset"):
        with lading.writer(folder / name, format=name, rows_per_shard=7) as writer:
            for i, ids in enumerate(_DOCUMENTS):
                writer.write({"__key__": f"{i:03}", "txt": _words(ids)})
    with lading.writer(folder / "ids", format="parquet", rows_per_shard=7) as writer:
        for ids in _DOCUMENTS:
            writer.write({"input_ids": np.array(ids, np.int32)})
    (folder / "lists").mkdir()
    pq.write_table(pa.table({"input_ids": pa.array(_DOCUMENTS, pa.list_(pa.int32()))}), folder / "lists/a.parquet")
    return folder


def _flat(batches: list[dict[str, Any]], name: str = "input_ids") -> list[int]:
    return [value for batch in batches for value in batch[name].ravel().tolist()]


def _pieces(batches: list[dict[str, Any]]) -> list[list[int]]:
    """The tokens of each document of each sequence."""
    found = []
    for batch in batches:
        for tokens, segments in zip(batch["input_ids"], batch["segment_ids"], strict=True):
            found += [tokens[segments == number].tolist() for number in range(1, segments.max() + 1)]
    return found


def _packed(source: Path, method: Any, *, batch: int = 4, rank: int = 0, world: int = 1, **options: Any) -> Packer:
    shuffle, seed = options.pop("shuffle", "global"), options.pop("seed", 3)
    loader = lading.loader(source, batch, shuffle=shuffle, seed=seed, rank=rank, world_size=world)
    window = {"window": 2} if method == "best-fit" else {}
    options = {"tokenizer": _tokens, "end": _END, "batch_size": 2, **window, **options}
    return lading.pack(loader, options.pop("length", 16), method=method, **options)


def _order(source: Path, **options: Any) -> list[int]:
    """The documents of an epoch, in the order of its loader."""
    return [int(key) for batch in lading.loader(source, 7, **options) for key in batch["__key__"]]


@pytest.mark.soak
@pytest.mark.parametrize("length", [1, 16, 1000])
@pytest.mark.parametrize("end", [None, _END])
def test_split_cuts_the_stream_of_all_documents(texts: Path, length: int, end: int | None) -> None:
    batches = [*_packed(texts / "parquet", "split", length=length, end=end, pad=-7)]
    order = _order(texts / "parquet", shuffle="global", seed=3)
    stream = [token for i in order for token in _DOCUMENTS[i] + ([] if end is None else [end])]
    found, segments = _flat(batches), _flat(batches, "segment_ids")
    assert found[: len(stream)] == stream
    assert len(found) == -(-len(stream) // length) * length
    assert set(found[len(stream) :]) <= {-7}
    assert [segment == 0 for segment in segments] == [at >= len(stream) for at in range(len(found))]
    assert all(batch["input_ids"].shape == (2, length) for batch in batches[:-1])


@pytest.mark.parametrize("method", _METHODS)
def test_segments_and_positions_begin_again_with_each_document(texts: Path, method: str) -> None:
    for batch in _packed(texts / "webdataset", method):
        shapes = {(values.shape, values.dtype) for values in batch.values()}
        assert len(shapes) == 1
        for tokens, positions, segments in zip(*batch.values(), strict=True):
            number, place = 0, 0
            for i, token in enumerate(tokens.tolist()):
                if segments[i] == 0:
                    assert (token, positions[i], set(segments[i:])) == (0, 0, {0})
                    break
                begins = i == 0 or tokens[i - 1] == _END
                number, place = (number + 1, 0) if begins else (number, place + 1)
                assert (segments[i], positions[i]) == (number, place)


@pytest.mark.parametrize("length", [4, 16, 64])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_best_fit_keeps_documents_whole(texts: Path, length: int, window: int) -> None:
    batches = [*_packed(texts / "parquet", "best-fit", length=length, window=window)]
    whole = [[*ids, _END] for ids in _DOCUMENTS]
    cut = [ids[begin : begin + length] for ids in whole for begin in range(0, len(ids), length)]
    assert sorted(_pieces(batches)) == sorted(cut)
    sequences = sum(len(batch["input_ids"]) for batch in batches)
    alone = len(cut)
    assert sequences < alone
    assert sequences >= -(-sum(map(len, whole)) // length)


def test_best_fit_places_the_longest_first_where_room_is_least(tmp_path: Path) -> None:
    """Lengths 6, 5, 4, 3, 2 fill two sequences of 10: 6 + 4 and 5 + 3 + 2."""
    with lading.writer(tmp_path / "d", format="parquet") as writer:
        for length in (2, 3, 6, 5, 4):
            writer.write({"txt": _words([length] * length)})
    [batch] = _packed(tmp_path / "d", "best-fit", length=10, end=None, shuffle=False)
    assert batch["input_ids"].tolist() == [[2] * 2 + [3] * 3 + [5] * 5, [6] * 6 + [4] * 4]
    assert batch["segment_ids"].tolist() == [[1] * 2 + [2] * 3 + [3] * 5, [1] * 6 + [2] * 4]


@pytest.mark.soak
@given(data=st.data())
def test_packing_goes_on_at_the_next_sequence(texts: Path, data: st.DataObject) -> None:
    """Stopped anywhere, and resumed with other batches, an epoch is what it is undisturbed; and so is the next one."""
    method, source = data.draw(st.sampled_from(_METHODS)), texts / data.draw(st.sampled_from(["parquet", "webdataset"]))
    world = data.draw(st.integers(1, 3))
    options: dict[str, Any] = {
        "length": data.draw(st.sampled_from([1, 7, 16, 200])),
        **({"window": data.draw(st.integers(1, 4))} if method == "best-fit" else {}),
        "end": data.draw(st.sampled_from([None, _END])),
        "shuffle": data.draw(st.sampled_from([False, "global", "block"])),
        "world": world,
        "rank": data.draw(st.integers(0, world - 1)),
    }

    def packer() -> Packer:
        return _packed(source, method, batch=data.draw(st.integers(1, 9)),
                       batch_size=data.draw(st.integers(1, 3)), **options)  # fmt: skip

    def sequences(batches: Any) -> list[list[list[int]]]:
        found = []
        for batch in batches:
            again = batch.get(PADDING, [False] * len(batch["input_ids"]))
            values = zip(*(value for name, value in batch.items() if name != PADDING), strict=True)
            found += [
                [each.tolist() for each in row]
                for row, comes_again in zip(values, again, strict=True)
                if not comes_again
            ]
        return found

    undisturbed = packer()
    epochs = [sequences(undisturbed), sequences(undisturbed)]
    running, before, loops = packer(), list[Any](), data.draw(st.integers(1, 3))
    for _ in range(loops):
        state = json.loads(json.dumps(running.state_dict()))
        again = packer()
        again.load_state_dict(state)
        again.set_epoch(again.epoch)
        assert again.state_dict() == state
        running, stop, iterator = again, data.draw(st.integers(0, 12)), iter(again)
        for batch in [batch for _, batch in zip(range(stop), iterator, strict=False)]:
            before += sequences([batch])
    last = packer()
    last.load_state_dict(json.loads(json.dumps(running.state_dict())))
    while len(before) < len(epochs[0]) + len(epochs[1]):
        before += sequences(last)
    assert before[: len(epochs[0] + epochs[1])] == epochs[0] + epochs[1]


def _steps(packers: list[Packer], steps: int | None = None) -> list[list[int]]:
    """The sequences of the next steps of all ranks, in the order of the job, without those that come again."""
    found: list[list[int]] = []
    for batches in islice(zip(*packers, strict=True), steps):  # strict: all ranks have as many steps
        marks = [batch.get(PADDING, [False] * len(batch["input_ids"])) for batch in batches]
        rows = [
            [*zip(batch["input_ids"].tolist(), again, strict=True)] for batch, again in zip(batches, marks, strict=True)
        ]
        found += [each[0] for row in zip_longest(*rows) for each in row if each is not None and not each[1]]
    return found


@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_ranks_have_the_same_sequences_as_one_and_as_many_steps(texts: Path, data: st.DataObject) -> None:
    """Also where a state goes on with other ranks and batches."""
    method, shuffle = data.draw(st.sampled_from(_METHODS)), data.draw(st.sampled_from([False, "global"]))

    def packers() -> list[Packer]:
        world, batch = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
        options: Any = {"batch": batch, "batch_size": data.draw(st.integers(1, 3)), "shuffle": shuffle}
        return [_packed(texts / "parquet", method, rank=rank, world=world, **options) for rank in range(world)]

    whole = _steps([_packed(texts / "parquet", method, shuffle=shuffle)])
    first, second = packers(), packers()
    steps = data.draw(st.integers(1, 5))
    loops: Any = [iter(each) for each in first]
    before = _steps(loops, steps)
    [state] = {json.dumps(each.state_dict()) for each in first}
    for each in second:
        each.load_state_dict(json.loads(state))
    assert before + (_steps(second) if len(before) < len(whole) else []) == whole


@pytest.mark.parametrize(
    "last, rows, again", [("short", [[2, 2], [1, 1]], 1), ("pad", [[2, 2], [2, 2]], 3), ("drop", [[2, 2]], 0)]
)
def test_the_last_step_of_all_ranks(tmp_path: Path, last: Any, rows: Any, again: int) -> None:
    """Five sequences in steps of two ranks by two."""
    with lading.writer(tmp_path / "d", format="parquet") as writer:
        for i in range(5):
            writer.write({"input_ids": [i] * 4})
    loaders = [lading.loader(tmp_path / "d", 1, last=last, rank=rank, world_size=2) for rank in range(2)]
    ranks = [[*lading.pack(loader, 4, batch_size=2)] for loader in loaders]
    assert [[len(batch["input_ids"]) for batch in step] for step in zip(*ranks, strict=True)] == rows
    assert sum(batch[PADDING].sum() for rank in ranks for batch in rank if last != "drop") == again
    seen = {int(ids[0]) for rank in ranks for batch in rank for ids in batch["input_ids"]}
    assert seen == {*range(4 if last == "drop" else 5)}


@pytest.mark.parametrize("collate", ["numpy", "torch"])
def test_sequences_come_through_a_data_loader(texts: Path, collate: Any) -> None:
    data = pytest.importorskip("torch.utils.data")

    def packed() -> Packer:
        return lading.pack(lading.loader(texts / "parquet", 4, collate=collate), 16, tokenizer=_tokens, batch_size=2)

    found = [batch["input_ids"].tolist() for batch in data.DataLoader(packed(), batch_size=None)]
    assert found == [batch["input_ids"].tolist() for batch in packed()]
    with pytest.raises(TypeError, match="packed sequences have no length: their number is known when"):
        len(packed())
    assert packed()


@pytest.mark.soak
def test_sequences_are_packed_in_the_process_of_the_loop(texts: Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    packed = lading.pack(lading.loader(texts / "parquet", 4, collate="torch"), 16, tokenizer=_tokens)
    with pytest.raises(UsageError, match="sequences are packed in the process of the loop"):
        next(iter(data.DataLoader(packed, batch_size=None, num_workers=1, multiprocessing_context="fork")))


@pytest.mark.parametrize("method", _METHODS)
def test_a_loop_that_ends_early_leaves_its_epoch(texts: Path, method: str) -> None:
    packer, whole = _packed(texts / "parquet", method), _packed(texts / "parquet", method)
    epochs = [[batch["input_ids"] for batch in whole] for _ in range(3)]
    for epoch, stop in enumerate((1, len(epochs[1]))):
        batches = iter(packer)
        found = [next(batches)["input_ids"] for _ in range(stop)]
        assert packer.epoch == epoch
        assert all(map(np.array_equal, found, epochs[epoch]))
    assert all(map(np.array_equal, (batch["input_ids"] for batch in packer), epochs[2]))
    assert packer.epoch == 3
    packer.set_epoch(0)
    assert np.array_equal(next(iter(packer))["input_ids"], epochs[0][0])


def test_epochs_differ(texts: Path) -> None:
    packer = _packed(texts / "parquet", "split")
    epochs = [_flat([*packer]) for _ in range(3)]
    assert all(one != other for one, other in pairwise(epochs))


@pytest.mark.parametrize("collate", ["numpy", "list", "arrow", "torch"])
@pytest.mark.parametrize("source", ["ids", "lists"])
def test_token_ids_need_no_tokenizer(texts: Path, source: str, collate: Any) -> None:
    if collate == "torch":
        torch = pytest.importorskip("torch")
    packed = lading.pack(lading.loader(texts / source, 9, collate=collate), 16, batch_size=4)
    batches = [*packed]
    if collate == "torch":
        assert {values.dtype for batch in batches for values in batch.values()} == {torch.int64}
    stream = [token for ids in _DOCUMENTS for token in ids]
    assert _flat(batches)[: len(stream)] == stream


@pytest.mark.parametrize("collate", ["numpy", "arrow"])
@pytest.mark.parametrize("source", ["parquet", "webdataset"])
def test_texts_of_any_batch(texts: Path, source: str, collate: Any) -> None:
    packed = lading.pack(lading.loader(texts / source, 9, collate=collate), 16, tokenizer=_tokens)
    stream = [token for ids in _DOCUMENTS for token in ids]
    assert _flat([*packed])[: len(stream)] == stream


@pytest.mark.soak
def test_texts_are_tokenized_by_the_batch_where_the_tokenizer_can(texts: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {str(token): token for ids in _DOCUMENTS for token in ids}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    for method in _METHODS:
        one, other = (_packed(texts / "parquet", method, tokenizer=each) for each in (tokenizer, _tokens))
        assert _flat([*one]) == _flat([*other])


def test_nulls_are_no_documents_and_are_counted(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="jsonl") as writer:
        for text in ("1 2", None, "3"):
            writer.write({"text": text})
    packer = _packed(tmp_path / "d", "split", length=5, shuffle=False)
    assert _flat([*packer]) == [1, 2, _END, 3, _END]
    assert packer.counts["samples without text, left out"] == 1


@pytest.mark.parametrize(
    "change, words",
    [
        ({"length": 8}, "length differs; expected 8, found 16"),
        ({"method": "best-fit"}, "method differs"),
        ({"end": None}, "end differs"),
        ({"seed": 4}, "the seed differs"),
    ],
)
def test_a_state_of_other_sequences_is_refused(texts: Path, change: dict[str, Any], words: str) -> None:
    state = _packed(texts / "parquet", "split").state_dict()
    other = _packed(texts / "parquet", **{"method": "split", **change})
    with pytest.raises(UsageError, match=words):
        other.load_state_dict(state)


def test_a_state_of_a_single_rank_of_before_is_accepted(texts: Path) -> None:
    packer = _packed(texts / "parquet", "split")
    next(iter(packer))
    state = packer.state_dict()
    assert state.pop("version") == 2
    again = _packed(texts / "parquet", "split", rank=1, world=2)
    again.load_state_dict({**state, "version": 1, "rank": 0, "world_size": 1})
    assert again.state_dict() == packer.state_dict()
    with pytest.raises(UsageError, match="version differs"):
        again.load_state_dict({**state, "version": 1, "rank": 0, "world_size": 2})


@pytest.mark.parametrize("change", [{"given": -1}, {"documents": "1"}, None])
def test_what_is_no_state_is_refused(texts: Path, change: Any) -> None:
    packer = _packed(texts / "parquet", "split")
    with pytest.raises(UsageError, match=r"of the state|no state of packed"):
        packer.load_state_dict({} if change is None else {**packer.state_dict(), **change})


@pytest.mark.parametrize(
    "options, words",
    [
        ({"length": 0}, "length must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"method": "greedy"}, "split or best-fit"),
        ({"pad": None}, "pad must be a whole number; found None"),
        ({"end": "</s>"}, "end must be a whole number; found '</s>'"),
        ({"window": 8}, 'only best-fit has a window; found window=8 with method="split"'),
        ({"tokenizer": "gpt2"}, "no tokenizer"),
        ({"column": "caption"}, "no column of texts to pack; expected 'caption', found __key__, txt"),
        ({"tokenizer": None}, "no column of token ids to pack; expected input_ids or tokens"),
    ],
)
def test_wrong_arguments_are_refused(texts: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        [*_packed(texts / "parquet", **{"method": "split", **options})]


def test_what_a_tokenizer_does_wrong_is_an_error(texts: Path) -> None:
    with pytest.raises(FunctionError, match=r"the tokenizer raised an error.*KeyError"):
        [*_packed(texts / "parquet", "split", tokenizer=lambda text: {}[text])]
    with pytest.raises(DataError, match="list of whole numbers"):
        [*_packed(texts / "parquet", "split", tokenizer=lambda text: [0.5, 1.5])]
    with pytest.raises(UsageError, match=r"has no texts; expected str, found (ndarray|bytes|list)"):
        [*_packed(texts / "ids", "split", column="input_ids")]


def test_other_loaders_are_refused() -> None:
    with pytest.raises(UsageError, match="takes a loader"):
        lading.pack([], 16)  # type: ignore[arg-type]


_IMAGE = -5
"""Stands for an image."""


def _prompt(sample: dict[str, Any]) -> dict[str, Any]:
    ids, images = list[int](), list[bytes]()
    for item in sample["items"]:
        if item["modality"] == "image":
            ids += [_IMAGE] * 3
            images.append(item["binary_content"])
        else:
            ids += item["text_content"].encode()[:60]
    return {"input_ids": ids, "images": images, "id": sample["sample_id"]}


@pytest.fixture(scope="module")
def documents() -> lading.Dataset:
    folder = str(resources.files("lading._core.data"))
    return lading.open([f"{folder}/docs-00000.tar", f"{folder}/docs-00001.tar"])


def _prompts(documents: lading.Dataset, length: int = 1200, **options: Any) -> Packer:
    loader = lading.loader(documents, 4, shuffle=True, decode=False, transform=_prompt)
    return lading.pack(loader, length, **{"method": "best-fit", "keep": ["id", "images"], "window": 2, **options})


@pytest.mark.soak
def test_images_stay_with_their_documents(documents: lading.Dataset) -> None:
    expected = {each["sample_id"]: _prompt(each) for each in documents.with_decode(False)}
    seen = []
    batches = [*_prompts(documents)]
    for batch in batches:
        for tokens, segments, ids, images in zip(
            batch["input_ids"], batch["segment_ids"], batch["id"], batch["images"], strict=True
        ):
            seen += ids
            for number, (name, pictures) in enumerate(zip(ids, images, strict=True), 1):
                mine = tokens[segments == number]
                assert mine.tolist() == expected[name]["input_ids"]
                assert pictures == expected[name]["images"]
                assert len(pictures) == np.count_nonzero(mine == _IMAGE) / 3
    assert sorted(seen) == sorted(expected)
    assert len(batches) < len(seen)
    running, again = _prompts(documents), _prompts(documents)
    next(iter(running))
    again.load_state_dict(json.loads(json.dumps(running.state_dict())))
    assert [batch["images"] for batch in again] == [batch["images"] for batch in batches[1:]]


def test_kept_columns_that_cannot_be_are_refused(documents: lading.Dataset) -> None:
    with pytest.raises(DataError, match=r"a document is longer than a sequence.*expected at most 10 tokens"):
        [*_prompts(documents, 10)]
    with pytest.raises(UsageError, match=r"no such column to keep; expected input_ids, images, id, found 'pixels'"):
        [*_prompts(documents, keep=["pixels"])]
    for options in ({"method": "split"}, {"keep": "id"}, {"keep": ["input_ids"]}):
        with pytest.raises(UsageError, match=r"columns are kept of whole documents|keep is a list of other columns"):
            _prompts(documents, **options)
    with pytest.raises(UsageError, match=r"no column of texts.*make one column of the items of a document"):
        [*lading.pack(lading.loader(documents, 2, decode=False), 16, tokenizer=_tokens)]


def test_two_columns_of_texts_get_one_name_by_advice(texts: Path, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="jsonl") as writer:
        writer.write({"text": "1 2"})
    both = lading.mix({"a": (lading.open(texts / "webdataset"), 1), "b": (lading.open(tmp_path / "d"), 1)})
    with pytest.raises(UsageError, match=r"several columns of texts.*ds.rename\(\{'txt': 'text'\}\)"):
        [*lading.pack(lading.loader(both, 2), 16, tokenizer=_tokens)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with tokens, a number and bytes beside them."""
    folder = tmp_path_factory.mktemp("pictures")
    for name in ("parquet", "webdataset", "jsonl"):
        with lading.writer(folder / name, format=name, rows_per_shard=7) as writer:
            for i, ids in enumerate(_DOCUMENTS):
                kept = {"bin": f"bytes {i}".encode()} if name != "jsonl" else {"label": i}
                writer.write({"__key__": f"{i:03}", "txt": _words(ids), **kept})
    return folder


def _rows(batch: dict[str, Any], kept: str) -> list[Any]:
    """The sequences of a batch with what is kept of their documents."""
    values = [[getattr(each, "tolist", lambda each=each: each)() for each in row] for row in batch[kept]]
    return [*zip(batch["input_ids"].tolist(), values, batch["__key__"], strict=True)]


@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_kept_columns_are_read_by_the_rank_that_gives_the_sequence(pictures: Path, data: st.DataObject) -> None:
    """They are those of one rank, wherever training stops, and no rank decodes those of others."""
    name = data.draw(st.sampled_from(["parquet", "webdataset", "jsonl"]))
    kept, decoded = "label" if name == "jsonl" else "bin", list[bytes]()
    shuffle = data.draw(st.sampled_from([False, "global", "block"]))

    def decode(value: bytes) -> bytes:
        decoded.append(value)
        return value

    def packers(world: int) -> list[Packer]:
        step, batch = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
        collate = data.draw(st.sampled_from(["numpy", "list"]))
        loaders = [
            lading.loader(pictures / name, step, shuffle=shuffle, seed=3, rank=rank, world_size=world, collate=collate,
                          decode={} if kept == "label" else {kept: decode})
            for rank in range(world)
        ]  # fmt: skip
        return [
            lading.pack(each, 41, tokenizer=_tokens, end=_END, method="best-fit", batch_size=batch, window=3,
                        keep=[kept, "__key__"])
            for each in loaders
        ]  # fmt: skip

    def given_by(packers: list[Any], steps: int | None = None) -> list[Any]:
        found: list[Any] = []
        for batches in islice(zip(*packers, strict=True), steps):
            again = [batch.get(PADDING, [False] * len(batch["input_ids"])) for batch in batches]
            rows = [[*zip(_rows(b, kept), marks, strict=True)] for b, marks in zip(batches, again, strict=True)]
            found += [each[0] for row in zip_longest(*rows) for each in row if each is not None and not each[1]]
        return found

    whole = given_by(packers(1))
    decoded.clear()
    first, second = packers(data.draw(st.integers(2, 4))), packers(data.draw(st.integers(1, 4)))
    loops: list[Any] = [iter(each) for each in first]
    before = given_by(loops, data.draw(st.integers(1, 3)))
    states = {json.dumps(each.state_dict()) for each in first}
    if len(before) < len(whole):
        [state] = states
        for each in second:
            each.load_state_dict(json.loads(state))
        before += given_by(second)
    assert before == whole
    decoded.clear()
    ranks = packers(3)
    numbers = []
    for each in ranks:
        decoded.clear()
        mine = {row[2][i]: row[1][i] for batch in each for row in _rows(batch, kept) for i in range(len(row[2]))}
        assert {*decoded} == ({*mine.values()} if kept == "bin" else set())
        numbers.append(len(mine))
    assert _COUNT <= sum(numbers) < 2 * _COUNT


def test_functions_and_skips_take_whole_samples(pictures: Path) -> None:
    """Their result is that of one rank as well."""

    def sequences(world: int, rank: int, **options: Any) -> list[Any]:
        loader = lading.loader(pictures / "parquet", 5, rank=rank, world_size=world, last="drop", **options)
        packed = lading.pack(loader, 41, tokenizer=_tokens, method="best-fit", batch_size=1, keep=["bin", "__key__"])
        return [row for batch in packed for row in _rows(batch, "bin")]

    plain = sequences(1, 0)
    assert len(plain) > 2
    for options in ({"transform": lambda sample: sample}, {"on_error": "skip"}, {"columns": ["txt", "bin", "__key__"]}):
        assert sequences(1, 0, **options) == plain
        assert sequences(2, 1, **options) == plain[1 : len(plain) // 2 * 2 : 2]


def test_columns_that_are_not_kept_are_not_decoded(pictures: Path) -> None:
    loader = lading.loader(pictures / "webdataset", 5, decode={"bin": lambda _: 1 / 0})
    assert _flat([*lading.pack(loader, 41, tokenizer=_tokens)])
    with pytest.raises(FunctionError, match="ZeroDivisionError"):
        [*lading.pack(loader, 41, tokenizer=_tokens, method="best-fit", keep=["bin"])]


def test_a_loader_lists_what_was_skipped_while_packing(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="parquet") as writer:
        for i in range(9):
            writer.write({"__key__": f"k{i}", "txt": f"{i}", "jpg": b"no image"} if i == 4 else
                         {"__key__": f"k{i}", "txt": f"{i}", "jpg": None})  # fmt: skip
    loader = lading.loader(tmp_path / "d", 3, on_error="skip", rank=1, world_size=2)
    [*lading.pack(loader, 4, tokenizer=_tokens)]
    assert [each.key for each in loader.skipped] == ["k4"]
