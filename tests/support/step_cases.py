"""Steps as Python and the command line spell them, beside plain functions over lists of dicts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import lading
from tars import tar_of

__all__ = [
    "CASES",
    "ROWS",
    "SOURCES",
    "Row",
    "StepCase",
    "drawn",
    "firsts",
    "more",
    "odd",
    "plain_rows",
    "write_sources",
]

SOURCES = ("in.tar", "in.parquet")
Row = dict[str, Any]

_FUNCTIONS = """
def odd(sample):
    return sample["json"]["id"] % 2 == 1

def more(sample):
    return {"n": sample["cls"] + 1, "txt": sample["txt"].upper()}
"""


def _png(width: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 10)).save(file, "PNG")
    return file.getvalue()


ROWS: list[Row] = [
    {
        "__key__": f"{i:02}",
        "cls": i % 3,
        "json": {"id": i, "lang": "en" if i % 4 else "de"},
        "png": _png(6 + i),
        "txt": f"text {i * 5 % 12 // 2}",
    }
    for i in range(12)
]
SCORES = {f"{i:02}": i / 2 for i in range(0, 12, 3)}
"""Scores of every third key, in `scores.csv`."""

KEYS = ["07", "02", "11", "02"]
"""The keys in `keys.txt`."""


def write_sources(folder: Path) -> None:
    """Write the rows as a tar and as Parquet, and the files that the options name."""
    values = ((row["__key__"], name, value) for row in ROWS for name, value in row.items() if name != "__key__")
    (folder / "in.tar").write_bytes(tar_of(*((f"{key}.{name}", _as_bytes(value)) for key, name, value in values)))
    rows = [row | {"png": {"bytes": row["png"], "path": None}} for row in ROWS]
    features = {"info": {"features": {"png": {"_type": "Image"}}}}  # as Hugging Face writes images
    kinds = {"__key__": pa.string(), "cls": pa.int64(), "json": pa.struct({"id": pa.int64(), "lang": pa.string()}),
             "png": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "txt": pa.string()}  # fmt: skip
    schema = pa.schema(kinds, {"huggingface": json.dumps(features)})
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "in.parquet")
    (folder / "f.py").write_text(_FUNCTIONS)
    (folder / "keys.txt").write_text("".join(f"{key}\n" for key in KEYS))
    (folder / "scores.csv").write_text("__key__,score\n" + "".join(f"{k},{s}\n" for k, s in SCORES.items()))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def plain_rows(samples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return samples with the same values from every format: no nulls, JSON parsed, images as bytes."""
    return [{name: _plain(value) for name, value in sample.items() if value is not None} for sample in samples]


def _plain(value: Any) -> Any:
    if isinstance(value, Image.Image):
        return _png(value.width)
    if isinstance(value, dict) and set(value) == {"bytes", "path"}:
        return value["bytes"]
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return value


def odd(sample: Row) -> bool:
    """Return whether the number of the sample is odd, as the function in `f.py` does."""
    return bool(sample["json"]["id"] % 2 == 1)


def more(sample: Row) -> Row:
    """Return a new and a changed field, as the function in `f.py` does."""
    return {"n": sample["cls"] + 1, "txt": sample["txt"].upper()}


@dataclass(frozen=True)
class StepCase:
    """One step, or several.

    Attributes:
        options: of the command line.
        chain: the same in Python; the second argument is the folder of `write_sources`.
        plain: the same over dicts.
    """

    options: list[str]
    chain: Callable[[lading.Dataset, Path], lading.Dataset]
    plain: Callable[[list[Row]], list[Row]]


def drawn(seed: int, count: int) -> list[int]:
    """Return so many numbers in the order of their draws."""
    return [int(n) for n in np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")]


def _without(*names: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{name: value for name, value in row.items() if name not in names} for row in rows]


def _flat(row: Row) -> Row:
    return {k: v for k, v in row.items() if k != "json"} | {f"json.{k}": v for k, v in row["json"].items()}


def _renamed(row: Row) -> Row:
    return {"caption" if name == "txt" else name: value for name, value in row.items()}


def _scored(row: Row) -> Row:
    return row | ({"score": SCORES[row["__key__"]]} if row["__key__"] in SCORES else {})


def firsts(rows: list[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Return the rows whose key no earlier row has."""
    firsts: dict[Any, Row] = {}
    for row in rows:
        firsts.setdefault(key(row), row)
    return list(firsts.values())


CASES: dict[str, StepCase] = {
    "where": StepCase(
        ["--where", "json.id >= 3 and json.lang == 'en'"],
        lambda ds, _: ds.where("json.id >= 3 and json.lang == 'en'"),
        lambda rows: [r for r in rows if r["json"]["id"] >= 3 and r["json"]["lang"] == "en"],
    ),
    "where, by the header of an image": StepCase(
        ["--where", "png.width < 10"],
        lambda ds, _: ds.where("png.width < 10"),
        lambda rows: [r for r in rows if 6 + r["json"]["id"] < 10],
    ),
    "where leaves nothing": StepCase(["--where", "cls > 5"], lambda ds, _: ds.where("cls > 5"), lambda _: []),
    "filter": StepCase(
        ["--filter", "f.py:odd"], lambda ds, _: ds.filter(odd), lambda rows: [r for r in rows if odd(r)]
    ),
    "max_side": StepCase(
        ["--max-side", "12"],
        lambda ds, _: ds.image_bounds(max_side=12),
        lambda rows: [r for r in rows if 6 + r["json"]["id"] <= 12],
    ),
    "min_side, min_aspect_ratio": StepCase(
        ["--min-side", "8", "--min-aspect-ratio", "1"],
        lambda ds, _: ds.image_bounds(min_side=8, min_aspect_ratio=1),
        lambda rows: [r for r in rows if 6 + r["json"]["id"] >= 10],
    ),
    "dedup by a column": StepCase(
        ["--dedup", "txt"], lambda ds, _: ds.dedup("txt"), lambda rows: firsts(rows, lambda r: r["txt"])
    ),
    "dedup by fields": StepCase(
        ["--dedup", "json.lang,cls"],
        lambda ds, _: ds.dedup(["json.lang", "cls"]),
        lambda rows: firsts(rows, lambda r: (r["json"]["lang"], r["cls"])),
    ),
    "take": StepCase(
        ["--take", "keys.txt"],
        lambda ds, folder: ds.take_keys(folder / "keys.txt"),
        lambda rows: [r for key in KEYS for r in rows if r["__key__"] == key],
    ),
    "sample": StepCase(
        ["--sample", "5", "--seed", "2"],
        lambda ds, _: ds.sample(5, seed=2),
        lambda rows: [rows[i] for i in sorted(drawn(2, len(rows))[:5])],
    ),
    "shuffle": StepCase(
        ["--shuffle", "--seed", "3"], lambda ds, _: ds.shuffle(3), lambda rows: [rows[i] for i in drawn(3, len(rows))]
    ),
    "sort": StepCase(
        ["--sort", "cls:desc"],
        lambda ds, _: ds.sort("cls", descending=True),
        lambda rows: sorted(rows, key=lambda r: -r["cls"]),
    ),
    "sort by fields": StepCase(
        ["--sort", "json.lang", "--sort", "png.width:desc"],
        lambda ds, _: ds.sort(["json.lang", "png.width"], descending=[False, True]),
        lambda rows: sorted(rows, key=lambda r: (r["json"]["lang"], -r["json"]["id"])),
    ),
    "limit": StepCase(["--limit", "5"], lambda ds, _: ds.limit(5), lambda rows: rows[:5]),
    "columns": StepCase(
        ["--columns", "txt,json.lang,png.width"],
        lambda ds, _: ds.select("txt", "json.lang", "png.width"),
        lambda rows: [
            {"__key__": r["__key__"], "txt": r["txt"], "json.lang": r["json"]["lang"], "png.width": 6 + r["json"]["id"]}
            for r in rows
        ],
    ),
    "drop_columns": StepCase(
        ["--drop-columns", "png,json"], lambda ds, _: ds.drop("png", "json"), _without("png", "json")
    ),
    "rename": StepCase(
        ["--rename", "txt=caption"], lambda ds, _: ds.rename({"txt": "caption"}), lambda rows: list(map(_renamed, rows))
    ),
    "cast": StepCase(
        ["--cast", "cls=float64"],
        lambda ds, _: ds.cast({"cls": "float64"}),
        lambda rows: [r | {"cls": float(r["cls"])} for r in rows],
    ),
    "flatten": StepCase(["--flatten", "json"], lambda ds, _: ds.flatten("json"), lambda rows: list(map(_flat, rows))),
    "map": StepCase(["--map", "f.py:more"], lambda ds, _: ds.map(more), lambda rows: [r | more(r) for r in rows]),
    "join": StepCase(
        ["--join", "scores.csv"],
        lambda ds, folder: ds.join(folder / "scores.csv"),
        lambda rows: list(map(_scored, rows)),
    ),
    "join, inner": StepCase(
        ["--join", "scores.csv", "--join-how", "inner"],
        lambda ds, folder: ds.join(folder / "scores.csv", how="inner"),
        lambda rows: [_scored(r) for r in rows if r["__key__"] in SCORES],
    ),
    "all at once": StepCase(
        [
            "--join",
            "scores.csv",
            "--where",
            "json.id > 1",
            "--filter",
            "f.py:odd",
            "--sort",
            "txt:desc",
            "--map",
            "f.py:more",
            "--flatten",
            "json",
            "--drop-columns",
            "png",
            "--rename",
            "txt=caption",
            "--limit",
            "4",
        ],
        lambda ds, folder: (
            ds.join(folder / "scores.csv")
            .where("json.id > 1")
            .filter(odd)
            .sort("txt", descending=True)
            .map(more)
            .flatten("json")
            .drop("png")
            .rename({"txt": "caption"})
            .limit(4)
        ),
        lambda rows: _without("png")(
            [
                _renamed(_flat(_scored(r) | more(r)))
                for r in sorted(
                    (r for r in rows if r["json"]["id"] > 1 and odd(r)), key=lambda r: r["txt"], reverse=True
                )
            ][:4]
        ),
    ),
}
