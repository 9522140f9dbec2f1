"""`assert_exact_resume` accepts loaders that go on exactly, and names the first difference of others."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import lading
from lading.testing import assert_exact_resume


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples") / "tars"
    image = io.BytesIO()
    Image.new("RGB", (8, 6), (1, 2, 3)).save(image, "JPEG")
    with lading.writer(folder, format="webdataset", rows_per_shard=10) as writer:
        for i in range(23):
            writer.write({"__key__": f"{i:03}", "jpg": image.getvalue(), "json": {"score": i / 2}, "cls": i})
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("through", ["pickle", "json"])
@pytest.mark.parametrize(
    "options",
    [{"collate": "numpy"}, {"collate": "list", "decode": {"jpg": "pil"}}, {"collate": "arrow", "last": "pad"}],
)
def test_a_loader_of_lading(folder: Path, options: dict[str, Any], through: Any) -> None:
    assert_exact_resume(lambda: lading.loader(folder, 4, shuffle=True, **options), through=through)


@pytest.mark.soak
def test_a_mixture_without_an_end(folder: Path) -> None:
    ds = lading.open(folder)
    mixture = lading.mix({"a": (ds, 0.3), "b": (ds[:5], 0.7)}, stop="never")
    assert_exact_resume(lambda: lading.loader(mixture, 4, shuffle=True, decode=False), num_batches=20)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # of torchdata's
def test_a_stateful_data_loader(folder: Path) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    torch = pytest.importorskip("torch")

    def over_ours() -> Any:
        loader = lading.loader(folder, 4, shuffle=True, collate="torch")
        return module.StatefulDataLoader(loader.to_torch(), batch_size=None, num_workers=0)

    def over_samples() -> Any:
        generator = torch.Generator()
        generator.manual_seed(5)
        numbers = torch.arange(20)
        return module.StatefulDataLoader(numbers, batch_size=3, shuffle=True, generator=generator)

    assert_exact_resume(over_ours)
    assert_exact_resume(over_samples, num_batches=7)


class Counting:
    """A loader of numbers that is right, unless a fault is chosen."""

    def __init__(self, make: Callable[[int], Any] = lambda i: {"x": i}, fault: str = "", count: int = 12) -> None:
        self._make, self._fault, self._count = make, fault, count
        self._next = 0

    def __iter__(self) -> Iterator[Any]:
        buffer = list[int]()
        while self._next < self._count or buffer:
            while len(buffer) < (3 if self._fault == "loses its buffer" else 1) and self._next < self._count:
                buffer.append(self._next)
                self._next += 1
            yield self._make(buffer.pop(0))
        self._next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "odd": object() if self._fault == "odd state" else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
        if self._fault == "gives one again" and self._next:
            self._next -= 1
        if self._fault == "begins anew":
            self._next = 0


@dataclass
class _Pair:
    image: Any
    table: Any


@pytest.mark.parametrize(
    "make",
    [
        lambda i: {"x": np.array([i, np.nan])},
        lambda i: [(i, float("nan")), {"deep": [None, {"a": str(i)}]}],
        lambda i: _Pair(Image.new("L", (2, 2), i), pa.table({"n": [i]})),
    ],
)
def test_batches_of_any_shape(make: Callable[[int], Any]) -> None:
    assert_exact_resume(lambda: Counting(make))
    with pytest.raises(AssertionError, match="the loader gives it again"):
        assert_exact_resume(lambda: Counting(make, "gives one again"))


@pytest.mark.parametrize(
    "fault, first, hint",
    [
        ("gives one again", 0, "it is batch 0 of the undisturbed run: the loader gives it again"),
        ("loses its buffer", 3, "it is batch 3 of the undisturbed run: 2 before it were lost"),
        ("begins anew", 0, "it is batch 0 of the undisturbed run: the loader gives it again"),
    ],
)
def test_a_loader_that_is_wrong(fault: str, first: int, hint: str) -> None:
    words = f"stopped after 1 batches and resumed: batch 1 differs at ['x']: expected 1, found {first}; {hint}"
    with pytest.raises(AssertionError, match=re.escape(words)):
        assert_exact_resume(lambda: Counting(fault=fault), stops=[0, 1, 5])


def test_what_differs_is_named_with_its_place() -> None:
    made = iter(range(100))

    def batch(value: Any) -> Callable[[int], Any]:
        return lambda i: {"a": 1, "jpg": [value(i)]}

    cases = [
        (lambda i: np.full((2, 3), i + next(made) // 24, np.uint8), r"at \['jpg'\]\[0\]\[0, 0\]: expected 0, found 1"),
        (lambda i: next(made) // 24 or "text", r"at \['jpg'\]\[0\]: expected str, found int"),
        (lambda i: [1] * (1 + next(made) // 24), r"at \['jpg'\]\[0\]: expected 1 values, found 2 values"),
        (lambda i: np.zeros(1 + next(made) // 24), r"at \['jpg'\]\[0\]: expected float64 \(1,\), found float64 \(2,\)"),
    ]
    for value, words in cases:
        made = iter(range(100))
        with pytest.raises(AssertionError, match=f"two new loaders give different batches.*batch 0 differs {words}"):
            assert_exact_resume(lambda value=value: Counting(batch(value)))


def test_a_loader_that_ends_early() -> None:
    class Ends(Counting):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self._next, self._count = state["next"], 0

    with pytest.raises(AssertionError, match=r"stopped after 3 .*the loader ends after 0 batches; 21 are missing"):
        assert_exact_resume(Ends, stops=[3])


def test_states_and_stops_that_cannot_be() -> None:
    with pytest.raises(AssertionError, match="JSON cannot hold the state"):
        assert_exact_resume(lambda: Counting(fault="odd state"), through="json")
    with pytest.raises(ValueError, match="stops must be from 0 to 23"):
        assert_exact_resume(Counting, stops=[24])
