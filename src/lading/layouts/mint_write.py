"""Interleaved items → MINT-1T style tars.

Per sample: its images as members `{key}.{position}.{extension}`, then `{key}.json` with `sample_id`, position-aligned
`texts` and `images`, and passthrough values. The key is the percent-encoded `sample_id`, dots too, so that WebDataset
readers see one sample.

Source: NeMo Curator 1.4.0, `stages/interleaved/io/writers/webdataset.py`, for names, order and lists. What the lists
cannot hold is refused, but for content types, which go into the field `__lading__`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading import jsontext
from lading.errors import LimitExceeded, Unrepresentable
from lading.features import Json, feature_of
from lading.formats.protocol import ShardFacts
from lading.formats.webdataset import WebdatasetWriter
from lading.interleaved import MODALITIES, RESERVED, content_type_of, extension_of, quote_key, sample_starts
from lading.layouts.mint import field_name
from lading.layouts.mint_rows import EXTRAS_FIELD
from lading.layouts.options import ROLES
from lading.ref import make_refs
from lading.store.protocol import Buffer
from lading.views import slices

__all__ = ["MAX_POSITIONS", "MintShardWriter", "Roles", "find_roles", "refuse_modalities"]

MAX_POSITIONS = 1_000_000
"""Positions of a sample, at most: a tar's lists have an entry for each, filled or not."""

_EXTRAS_LABEL = jsontext.dumps(EXTRAS_FIELD)
_USUAL_TYPES = {"metadata": "application/json", "text": "text/plain"}


class Roles:
    """For which rows each passthrough column holds values: `sample`, `image`, `text` or `item`.

    A column gets its role from the first sample that fills it, or from a scan beforehand (`find_roles`); the manifest
    keeps roles, so that lists go back to the items they came from.
    """

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self.of: dict[str, str] = dict(known or {})

    def options(self) -> dict[str, list[str]]:
        """The options with which lading's reader gets the same columns back."""
        return {
            f"per_{role}_fields": [field_name(name) for name, r in self.of.items() if r == role]
            for role in ROLES
            if role in self.of.values()
        }


def find_roles(tables: Any, names: list[str]) -> dict[str, str]:
    """Roles of columns from all rows: an iterable of tables with `modality` and these columns."""
    filled: dict[str, set[str]] = {name: set() for name in names}
    for table in tables:
        modality = table.column("modality")
        for name in names:
            if name in table.schema.names and table.column(name).null_count < table.num_rows:
                there = pc.unique(modality.filter(table.column(name).is_valid()))
                filled[name].update(there.to_pylist())
    return {name: _role(kinds) for name, kinds in filled.items() if kinds}


def _role(modalities: set[str]) -> str:
    if "metadata" in modalities:
        return "sample"
    return modalities.pop() if len(modalities) == 1 else "item"


class MintShardWriter:
    """Writes item rows as one tar. Batches hold whole samples, payload as bytes or views.

    Args:
        writer: the tar being written.
        schema: of the batches.
        roles: shared by the shards of a dataset.
    """

    def __init__(self, writer: WebdatasetWriter, schema: pa.Schema, roles: Roles) -> None:
        self._writer, self._roles = writer, roles
        self._passthrough = [_Passthrough(f) for f in schema if f.name not in RESERVED]
        self._keys: Counter[str] = Counter()
        self._samples = 0
        self.counts: Counter[str] = Counter()

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        """Append whole samples; give names and places of the members written.

        Raises:
            Unrepresentable: a row that the lists cannot hold; names row, column and sample.
        """
        _refuse_misfits(batch)
        names: list[str] = []
        values: list[Buffer] = []
        rows = _BatchRows(batch, self._passthrough)
        starts = sample_starts(batch.column("sample_id"))
        keys = quote_key(batch.column("sample_id").take(pa.array(starts))).to_pylist()
        for key, (start, stop) in zip(keys, pairwise([*starts.tolist(), batch.num_rows]), strict=True):
            self._add_sample(rows, self._unique(key), start, stop, names, values)
        self._samples += len(starts)
        offset, length = self._writer.add(names, values)
        return pa.table({"name": pa.array(names, pa.string()), "ref": make_refs(offset, length)})

    def _add_sample(
        self, rows: _BatchRows, key: str, start: int, stop: int, names: list[str], values: list[Buffer]
    ) -> None:
        sample_id = rows.sample_id[start]
        if sum(rows.modality[i] == "metadata" for i in range(start, stop)) > 1:
            raise Unrepresentable("a sample has one metadata row in a tar", row=start, sample=sample_id,
                                  column="modality", found="several")  # fmt: skip
        size = 1 + max((rows.position[i] for i in range(start, stop)), default=-1)
        if size > MAX_POSITIONS:
            raise LimitExceeded("the lists of a sample would be too long: one entry a position", row=start,
                                sample=sample_id, column="position", expected=f"positions below {MAX_POSITIONS:,}",
                                found=f"{size - 1:,}", advice="Number the items anew, or write Parquet.")  # fmt: skip
        texts: list[str | None] = [None] * size
        images: list[str | None] = [None] * size
        extras: dict[str, str | None] = {}
        order = sorted(range(start, stop), key=lambda i: (rows.position[i], rows.modality[i] != "text"))
        for i in order:
            self._add_row(rows, i, key, texts, images, extras, names, values)
        document = {"sample_id": sample_id, "texts": texts, "images": images}
        text = jsontext.dumps(document)[:-1]
        for column in self._passthrough:
            found = self._value(rows, column, order)
            if found is not None:
                text += f", {column.label}: {found}"
        if extras:
            text += f", {_EXTRAS_LABEL}: {jsontext.dumps({'content_type': extras})}"
        names.append(key + ".json")
        values.append((text + "}").encode())

    def _unique(self, key: str) -> str:
        """The key in this tar; one that comes again gets a number behind `+`, which no encoded key holds."""
        self._keys[key] += 1
        again = self._keys[key]
        if again > 1:
            self.counts["samples whose id another sample of the shard has"] += 1
        return f"{key}+{again}" if again > 1 else key

    def _add_row(
        self,
        rows: _BatchRows,
        i: int,
        key: str,
        texts: list[str | None],
        images: list[str | None],
        extras: dict[str, str | None],
        names: list[str],
        values: list[Buffer],
    ) -> None:
        modality, position, content_type = rows.modality[i], rows.position[i], rows.content_type[i]
        usual = _USUAL_TYPES.get(modality)
        if modality == "text":
            if texts[position] is not None:
                raise Unrepresentable("two texts of a sample have one position", row=i, sample=rows.sample_id[i],
                                      column="position", found=position)  # fmt: skip
            texts[position] = rows.text[i]
            if rows.text[i] is None:
                self.counts["null texts, written as gaps"] += 1
        elif modality == "image":
            if images[position] is not None:
                raise Unrepresentable("two images of a sample have one position", row=i, sample=rows.sample_id[i],
                                      column="position", found=position)  # fmt: skip
            name = images[position] = f"{key}.{position}.{extension_of(content_type)}"
            data = rows.data[i]
            usual = content_type_of(name) if data is not None else None
            if data is not None:
                names.append(name)
                values.append(data)
        if content_type != usual:
            extras[f"{modality} {position}"] = content_type

    def _value(self, rows: _BatchRows, column: _Passthrough, order: list[int]) -> str | None:
        """A passthrough field of one sample as JSON text; None if it has no value."""
        values = rows.passthrough[column.name]
        filled = {rows.modality[i] for i in order if values[i] is not None}
        if not filled:
            return None
        role = self._roles.of.setdefault(column.name, _role(set(filled)))
        fits = ROLES.get(role, ("metadata",))
        if not filled <= {*fits}:
            raise Unrepresentable(
                f"the column holds values of {' and '.join(sorted(filled))} rows here, and of {role} rows elsewhere",
                sample=rows.sample_id[order[0]], column=column.name,
                advice="A tar keeps one value a sample, or a list with one entry an image, a text or an item.",
            )  # fmt: skip
        texts = [column.text(values[i]) for i in order if rows.modality[i] in fits]
        return texts[0] if role == "sample" else f"[{', '.join(texts)}]"

    def bytes_written(self) -> int:
        """Bytes so far."""
        return int(self._writer.bytes_written())

    def held_bytes(self) -> int:
        """Nothing: what is written is in the sink."""
        return 0

    def close(self) -> ShardFacts:
        """Finish the tar."""
        facts = self._writer.close()
        return ShardFacts(self._samples, facts.size_bytes, facts.payload_bytes)


class _Passthrough:
    """A passthrough column and how its values are spelled in JSON."""

    def __init__(self, field: pa.Field) -> None:
        self.name = field.name
        self.label = jsontext.dumps(field_name(field.name))
        self._is_json = isinstance(feature_of(field), Json)
        if not self._is_json and not _is_json_type(field.type):
            raise Unrepresentable("JSON has no exact form for the type of this column", column=field.name,
                                  found=field.type, advice="Leave it out with --columns, or cast it.")  # fmt: skip

    def text(self, value: Any) -> str:
        """JSON text of one value."""
        if value is None:
            return "null"
        return str(value) if self._is_json else jsontext.dumps(value)


def _is_json_type(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_json_type(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_null,
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


class _BatchRows:
    """The columns of a batch as Python lists; payload as memory views."""

    def __init__(self, batch: pa.RecordBatch, passthrough: list[_Passthrough]) -> None:
        count, there = batch.num_rows, set(batch.schema.names)

        def column(name: str) -> list[Any]:
            return batch.column(name).to_pylist() if name in there else [None] * count

        self.sample_id: list[str] = column("sample_id")
        self.position: list[int] = column("position")
        self.modality: list[str] = column("modality")
        self.content_type: list[str | None] = column("content_type")
        self.text: list[str | None] = column("text_content")
        self.data = slices(batch.column("binary_content")) if "binary_content" in there else [None] * count
        self.passthrough = {p.name: column(p.name) for p in passthrough}


def _refuse_misfits(batch: pa.RecordBatch) -> None:
    """Rows that a MINT-1T tar has no place for, found by column before anything is written."""
    refuse_modalities(batch)
    modality, position = batch.column("modality"), batch.column("position")
    is_metadata = pc.equal(modality, "metadata")
    misfits = [
        ("only the metadata row has the position −1", "position",
         pc.or_(pc.and_(is_metadata, pc.not_equal(position, -1)),
                pc.and_(pc.invert(is_metadata), pc.less(position, 0)))),
    ]  # fmt: skip
    if "text_content" in batch.schema.names:
        text = batch.column("text_content").is_valid()
        misfits.append(("only a text item has text", "text_content",
                        pc.and_(text, pc.not_equal(modality, "text"))))  # fmt: skip
    if "binary_content" in batch.schema.names:
        data = batch.column("binary_content").is_valid()
        misfits.append(("only an image item has bytes", "binary_content",
                        pc.and_(data, pc.not_equal(modality, "image"))))  # fmt: skip
    _refuse(batch, misfits)


def refuse_modalities(batch: pa.RecordBatch) -> None:
    """Raise Unrepresentable for an item that is no metadata, text or image."""
    modality = batch.column("modality")
    known = pc.is_in(modality, pa.array(MODALITIES, modality.type))
    _refuse(batch, [("a tar holds metadata, text and image items only", "modality", pc.invert(known))])


def _refuse(batch: pa.RecordBatch, misfits: list[tuple[str, str, pa.Array]]) -> None:
    modality = batch.column("modality")
    for message, column, mask in misfits:
        bad = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        if len(bad):
            row = int(bad[0])
            value = batch.column(column)[row].as_py() if column != "binary_content" else "bytes"
            raise Unrepresentable(message, row=row, sample=batch.column("sample_id")[row].as_py(), column=column,
                                  found=f"{str(value)[:60]!r} in a row of modality {modality[row].as_py()!r}",
                                  advice="Drop such rows, or write Parquet.")  # fmt: skip
