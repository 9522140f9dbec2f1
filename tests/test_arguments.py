"""An argument that a public function lacks is answered with the name that users type, and with what to write."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields
from pathlib import Path
from pydoc import plaintext, render_doc
from typing import Any

import pytest

import lading
import lading.compat.datatrove
import lading.media
import lading.ray
from lading._core.api.dataset import Dataset
from lading.errors import SeveralSplits, UnknownArgument, UsageError
from lading.options import OpeningOptions, ReadOptions

_STORES = {"storage_options", "cache_dir", "cache_limit"}
"""Arguments of `lading.open` that become a part of `ReadOptions.stores`."""
_FUNCTIONS = [name for name in lading.__all__ if name not in ("Dataset", "LadingError", "writer")]


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    with lading.writer(tmp_path / "d", format="jsonl") as out:
        for number in range(3):
            out.write({"n": number})
    return lading.open(tmp_path / "d")


@pytest.mark.cases(99)
@pytest.mark.parametrize("name", [*_FUNCTIONS, "writer"])
def test_each_function_says_its_public_name(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^lading\.{name}\(\) has no argument zzz") as error:
        getattr(lading, name)("x", zzz=1)
    assert isinstance(error.value, UnknownArgument)
    assert isinstance(error.value, UsageError)
    with pytest.raises(TypeError, match=rf"^lading\.{name}\(\) missing "):  # as Python says it
        getattr(lading, name)()


def test_each_method_of_a_dataset_says_its_public_name(ds: Dataset) -> None:
    methods = {name for name, each in inspect.getmembers(Dataset, callable) if not name.startswith("_")}
    forwarding = {"loader": "lading.loader", "write": "lading.convert", "stats": "ds.stats", "export": "ds.export",
                  "push": "lading.push"}  # fmt: skip
    assert len(methods) > 30
    for name in methods:
        with pytest.raises(UnknownArgument) as error:
            getattr(ds, name)(*(["x", "mds"] if name in ("push", "write") else []), zzz=1)
        assert str(error.value).startswith(f"{forwarding.get(name, f'ds.{name}')}() has no argument zzz"), name


def test_modules_say_their_names() -> None:
    for function, name in (
        (lading.train.frames, "lading.train.frames"), (lading.train.plan, "lading.train.plan"),
        (lading.caches.write_cache, "lading.caches.write_cache"), (lading.ray.to_ray, "lading.ray.to_ray"),
        (lading.media.MediaWriter, "lading.media.MediaWriter"),
        (lading.compat.datatrove.LadingReader, "LadingReader"), (lading.compat.datatrove.LadingWriter, "LadingWriter"),
    ):  # fmt: skip
        with pytest.raises(UnknownArgument) as error:
            function("x", zzz=1)
        assert str(error.value).startswith(f"{name}() has no argument zzz"), name


@pytest.mark.parametrize(
    "given, said",
    [
        ({"num_workers": 2}, "workers=N"),
        ({"drop_last": True}, 'last="drop"'),
        ({"pin_memory": True}, "batch_transform="),
        ({"collate_fn": list}, "collate=FUNCTION"),
        ({"batchsize": 4}, "Did you mean batch_size?"),
        ({"num_workers": 2, "drop_last": True}, "num_workers: Threads.*drop_last: Write"),
        ({"zzz": 2}, r"'help\(lading\.loader\)' lists"),
    ],
)  # fmt: skip
@pytest.mark.cases(99)
def test_a_loader_answers_arguments_of_other_loaders(ds: Dataset, given: dict[str, Any], said: str) -> None:
    for call in (lambda: lading.loader("x", **given), lambda: ds.loader(8, **given)):
        with pytest.raises(UnknownArgument, match=said):
            call()


def test_what_is_a_step_or_has_another_name_is_said(ds: Dataset) -> None:
    for call, said in (
        (lambda: lading.open("x", on_error="warn"), "on_materialize_error="),
        (lambda: lading.open("x", columns=["a"]), r"lading\.open\(…\)\.select"),
        (lambda: lading.digest("x", where="n > 1"), r"lading\.open\(…\)\.where"),
        (lambda: lading.convert("x", "y", sort="n"), r"lading\.open\(…\)\.sort"),
        (lambda: lading.convert("x", "y", shardsize=1), "shard_size"),
        (lambda: ds.where("n > 1", policy="skip"), r"ds\.where\(\) .* expected condition, drop"),
        (lambda: ds.stats(workrs=1), "workers"),
    ):
        with pytest.raises(UnknownArgument, match=said):
            call()


def test_attributes_of_other_datasets_are_answered(ds: Dataset) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'skip'\. Write ds\[N:\]\.$"):
        _ = ds.skip  # type: ignore[attr-defined] # refused
    with pytest.raises(AttributeError, match=r"no attribute 'shufle'$") as error:
        _ = ds.shufle  # type: ignore[attr-defined] # refused
    assert (error.value.name, error.value.obj) == ("shufle", ds)  # so Python says: did you mean 'shuffle'?
    assert not hasattr(ds, "features")


def test_type_checkers_see_the_arguments_of_open() -> None:
    typed = {name: kind.__forward_arg__ for name, kind in OpeningOptions.__annotations__.items()}
    shown = {name: each for name, each in inspect.signature(lading.open).parameters.items() if name != "source"}
    assert {name: each.annotation for name, each in shown.items()} == typed
    assert {name: kind for name, kind in typed.items() if name not in _STORES} == ReadOptions.__annotations__
    assert {name: each.default for name, each in shown.items() if name not in _STORES} == {
        option.name: getattr(ReadOptions(), option.name) for option in fields(ReadOptions)
    }


def test_help_and_editors_see_all_arguments(ds: Dataset) -> None:
    opening = inspect.signature(lading.open).parameters.keys() - {"source"}
    for function in (lading.loader, lading.digest, lading.verify, lading.info, lading.index, lading.ray.to_ray):
        shown = inspect.signature(function).parameters
        assert opening < shown.keys()
        assert all(each.kind is not each.VAR_KEYWORD for each in shown.values())
    asked = inspect.signature(lading.loader).parameters.keys() - opening - {"source"}
    assert inspect.signature(ds.loader).parameters.keys() == asked
    assert inspect.signature(Dataset.loader).parameters.keys() == {"self", *asked}
    assert {"source", *inspect.signature(ds.write).parameters} == {*inspect.signature(lading.convert).parameters}
    assert "shuffle: " in render_doc(ds.loader, renderer=plaintext)
    assert "limits: 'Limits' = Limits()" in render_doc(lading.open, renderer=plaintext)


def test_public_functions_can_be_pickled() -> None:
    for name in lading.__all__:
        assert pickle.loads(pickle.dumps(getattr(lading, name))) is getattr(lading, name)


def test_a_loader_opens_what_the_advice_of_open_names(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        with lading.writer(tmp_path / "hub" / split, format="parquet") as out:
            for number in range(count):
                out.write({"n": number})
    with pytest.raises(SeveralSplits, match="split='train'"):
        lading.loader(tmp_path / "hub", 2)
    assert [batch["n"].tolist() for batch in lading.loader(tmp_path / "hub", 2, split="test")] == [[0, 1]]
    assert lading.train.plan(tmp_path / "hub", 2, split="train").samples == 4
    with pytest.raises(UsageError, match=r"open already.*found split"):
        lading.loader(lading.open(tmp_path / "hub", split="test"), 2, split="train")


def test_arguments_that_a_mixture_has_are_refused(ds: Dataset) -> None:
    mixture = lading.mix({"a": (ds, 1.0)}, seed=1)
    with pytest.raises(UsageError, match=r"a seed of its own.*lading\.mix\(…, seed=3\)"):
        lading.loader(mixture, 2, seed=3)
    with pytest.raises(UsageError, match=r"open already.*found cache_dir"):
        lading.loader(mixture, 2, cache_dir="x")


def test_arguments_that_would_be_ignored_are_refused(ds: Dataset, tmp_path: Path) -> None:
    behind = ds.where("n > 0")
    for call, said in (
        (lambda: ds.batches(max_bytes=1, max_batch_bytes=2), "expected max_bytes or max_batch_bytes"),
        (lambda: ds.batches(on_error="warn", on_materialize_error="warn"), "names of one argument"),
        (lambda: ds.batches(lazy=True, views=True), "found lazy=True, views=True"),
        (ds.image_bounds, "no bound is given"),
        (lambda: ds.write(tmp_path / "o.jsonl", drop="sample"), "there is none; found drop='sample'"),
        (lambda: ds.write(tmp_path / "o.jsonl", on_error="warn", on_materialize_error="drop_row"), "one argument"),
        (lambda: behind.stats(workers=2), r"in one process; .* found workers=2\. .* leave out workers= and executor="),
        (lambda: lading.digest(behind, executor="threads"), "found executor='threads'"),
        (lambda: lading.diff(ds, ds, storage_options={"retry_s": 1}), "both datasets are open already"),
        (lambda: lading.loader(ds, collate="arrow", transform=dict), 'found transform= with collate="arrow"'),
        (lambda: lading.loader(ds, collate="arrow", image_size=8), "found image_size="),
        (lambda: lading.loader(ds, decode=False, image_size=8), "images are not decoded"),
    ):
        with pytest.raises(UsageError, match=said):
            call()
