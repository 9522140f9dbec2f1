"""Values of functions become arrays where they are numbers, or of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lading._core.train.collate import collated, put_sample, samples_of


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([1, 2], "int64"),
        ([1.5, 2.0], "float64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.float32(1), None], "float32"),
        ([1.0, None], "float64"),
        ([np.zeros(2, "int8"), np.ones(2, "int8")], "int8"),
    ],
)
def test_numbers_and_equal_shapes_are_arrays(values: list[Any], dtype: str) -> None:
    found = collated(values, torch=False)
    assert isinstance(found, np.ndarray)
    assert found.dtype == dtype
    for value, row in zip(values, found, strict=True):
        assert np.array_equal(row, np.nan if value is None else value, equal_nan=True)


@pytest.mark.parametrize(
    "values",
    [[], [None], [1, None], ["a"], [b"a"], [1, "a"], [1, True], [2**70], [-1, 2**63], [[1], [2]], [{"a": 1}],
     [np.zeros(2), None], [np.zeros(2), np.zeros(3)], [np.zeros(2), np.zeros(2, "int8")], [1, np.zeros(2)]],
)  # fmt: skip
def test_other_values_stay_as_they_are(values: list[Any]) -> None:
    assert collated(values, torch=False) is values


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    found = collated([torch.zeros(2), torch.ones(2)], torch=False)
    assert found.tolist() == [[0, 0], [1, 1]]
    uneven = [torch.zeros(2), torch.ones(3)]
    assert collated(uneven, torch=True) == uneven
    assert collated([1, 2], torch=True).dtype == torch.int64
    assert collated([np.zeros(2), None, "a"], torch=True)[0].dtype == torch.float64
    assert collated([np.array("a"), np.array("b")], torch=True).tolist() == ["a", "b"]
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    assert collated([fixed, None], torch=True)[0].tolist() == [0, 0]


def test_samples_have_numbers_of_python_where_these_have_the_type() -> None:
    columns = {"x": np.array([1, 2]), "y": np.array([1, 2], np.float32), "z": ["a", "b"], "w": np.zeros((2, 3))}
    first = samples_of(columns)[0]
    assert (type(first["x"]), type(first["y"]), first["z"], first["w"].shape) == (int, np.float32, "a", (3,))


def test_a_sample_in_the_place_of_another() -> None:
    columns = {"x": np.array([1, 2]), "lists": np.zeros((2, 3)), "old": ["a", "b"], "some": np.array([1, 2])}
    put_sample(columns, 2, 1, {"x": np.array([7]), "lists": [np.ones(5)], "new": ["c"]})
    assert columns["x"].tolist() == [1, 7]
    assert [each.shape for each in columns["lists"]] == [(3,), (5,)]
    assert (columns["old"], columns["new"], columns["some"]) == (["a", None], [None, "c"], [1, None])
