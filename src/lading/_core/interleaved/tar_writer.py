"""Interleaved items → MINT-1T style tars.

Per sample: its images as members `{key}.{position}.{extension}`, then `{key}.json` with `sample_id`, position-aligned
`texts` and `images`, and passthrough values. The key is the percent-encoded `sample_id` (dots too), so that WebDataset
readers see one sample.

Source: NeMo Curator 1.4.0, `stages/interleaved/io/writers/webdataset.py`, for names, order and lists. Data that the
lists cannot hold are refused, except content types, which go into the field `__lading__`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.batches import with_columns
from lading._core.arrow.byte_ranges import ByteRanges, in_memory
from lading._core.arrow.references import make_refs
from lading._core.arrow.views import byte_lengths, is_text, join, places, row_bytes
from lading._core.content.image import is_one_frame
from lading._core.features.items import MODALITIES, RESERVED, extension_of, quote_key, split_rows
from lading._core.formats.base import MemberWriter, Ranges, ShardFacts, ShardWriter, single_ranges
from lading._core.interleaved.tar import field_name
from lading._core.interleaved.tar_items import IMAGE, MAX_POSITIONS, Clash, Items, clashes
from lading._core.interleaved.tar_json import ContentTypes, Passthrough, documents, kinds_of
from lading.errors import Unrepresentable
from lading.limits import DEFAULT_LIMITS
from lading.options import ROLES

__all__ = ["MAX_POSITIONS", "Roles", "TarDocumentsWriter", "find_roles"]

_PART_BYTES, _ENTRY_BYTES = 4 << 20, 64
"""Bytes of text and list entries that become JSON at once, which takes several times their memory."""

_TIFF, _JSON = extension_of("image/tiff"), extension_of("application/json")


class Roles:
    """The rows for which each passthrough column holds values: `sample`, `image`, `text` or `item`.

    A column gets its role from the first sample that fills it, or from a scan beforehand (`find_roles`). The manifest
    stores roles, so that lists return to the items they came from.
    """

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self.of: dict[str, str] = dict(known or {})

    def learn(self, roles: Mapping[str, str]) -> None:
        """Set the roles of columns that have none yet."""
        for name, role in roles.items():
            self.of.setdefault(name, role)

    def options(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the options with which lading's reader restores these columns.

        They include columns with one value a sample, although readers do not need them: merging uses them to recognise
        columns without values.
        """
        there = {*names}
        of = {name: role for name, role in self.of.items() if name in there}
        return {
            f"per_{role}_fields": [field_name(name) for name, r in of.items() if r == role]
            for role in ("sample", *ROLES)
            if role in of.values()
        }


def find_roles(tables: Any, names: list[str]) -> dict[str, str]:
    """Return roles of columns from all rows: an iterable of tables with `modality` and these columns."""
    filled: dict[str, set[str]] = {name: set() for name in names}
    for table in tables:
        modality = table.column("modality")
        for name in {*table.schema.names}.intersection(names):
            if table.column(name).null_count < table.num_rows:
                there = pc.unique(modality.filter(table.column(name).is_valid()))
                filled[name].update(there.to_pylist())
    return {name: _role(kinds) for name, kinds in filled.items() if kinds}


def _role(modalities: set[str]) -> str:
    if "metadata" in modalities:
        return "sample"
    return modalities.pop() if len(modalities) == 1 else "item"


class TarDocumentsWriter(ShardWriter):
    """Write item rows as one tar. Batches hold whole samples, payload as bytes or views.

    Args:
        writer: the tar being written.
        schema: schema of the first batches; later ones may have other columns.
        roles: shared by the shards of a dataset.

    Raises:
        Unrepresentable: a column of a type that JSON does not have.
    """

    def __init__(self, writer: MemberWriter, schema: pa.Schema, roles: Roles) -> None:
        self._writer, self._roles = writer, roles
        self.takes_ranges = writer.takes_ranges
        self._passthrough = _passthrough(schema)
        self._keys: dict[str, int] = {}
        self._samples = 0

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        """Append whole samples; return names and places of the written members.

        Raises:
            Unrepresentable: a row that the lists cannot hold; names row, column and sample. Nothing is written then.
        """
        return self.write_ranges(batch, {})

    def write_ranges(self, batch: pa.RecordBatch, ranges: Ranges) -> pa.Table:
        """As `write`, with payload copied from files."""
        names, values, count = [pa.array([], pa.string())], list[ByteRanges](), 0
        last = [np.zeros(0, np.int64)]
        if len(batch):
            views = [i for i, kind in enumerate(batch.schema.types) if pa.types.is_string_view(kind)]
            batch = with_columns(batch, {i: join(batch.column(i)) for i in views})  # few kernels accept such columns
            self._passthrough = _passthrough(batch.schema)
            items = Items.of(batch, single_ranges(ranges).get("binary_content"))
            self._refuse_clashes(items)
            self._samples += len(items.size)
            for first, stop in pairwise(_parts(items)):
                found, ends = self._add_members(items.part(first, stop), values)
                names.append(found)
                last.append(count + ends)
                count += len(found)
        members = pa.concat_arrays(names)
        offset, length = self._writer.add(members, ByteRanges.joined(values), np.concatenate(last))
        return pa.table({"name": members, "ref": make_refs(offset, length)})

    def _refuse_clashes(self, items: Items) -> None:
        """Find the roles of columns; raise the error of the first sample that the lists cannot hold."""
        found = {column.name: items.there(column.name) for column in self._passthrough}
        filled = {name: there for name, there in found.items() if there.any()}
        first = {name: int(items.sample[np.argmax(there)]) for name, there in filled.items()}
        for name in sorted(first, key=first.__getitem__):
            self._roles.of.setdefault(name, _role(_kinds(items, filled[name], first[name])))
        misfits = (self._misfit(items, name, there) or _on_gap(items, name, there) for name, there in filled.items())
        wrong = [*clashes(items), *(clash for clash in misfits if clash)]
        if wrong:
            # For one sample, the first in the list.
            raise min(wrong, key=lambda clash: clash[0])[1]

    def _misfit(self, items: Items, name: str, there: NDArray[np.bool_]) -> Clash | None:
        """Return a sample with values of a column in rows that have none in other samples."""
        role = self._roles.of[name]
        wrong = there & ~kinds_of(role)[items.kind]
        if not wrong.any():
            return None
        sample = int(items.sample[np.argmax(wrong)])
        kinds = " and ".join(sorted(_kinds(items, there, sample)))
        return sample, Unrepresentable(
            f"the column holds values of {kinds} rows here, and of {role} rows elsewhere",
            sample=items.sample_id(sample), column=name,
            advice="A tar keeps one value a sample, or a list with one entry an image, a text or an item.",
        )  # fmt: skip

    def _add_members(self, items: Items, values: list[ByteRanges]) -> tuple[pa.StringArray, NDArray[np.int64]]:
        """Append the members of some samples; return their names, and the last member of each sample."""
        ids = items.texts("sample_id").take(pa.array(items.row[items.bounds[:-1]]))
        keys = self._unique(quote_key(ids))
        types, payloads = ContentTypes.of(items), _payloads(items)
        types = types.hiding(_misread(items, types, payloads))
        images = _image_names(items, keys, types)
        fields = [(column, self._roles.of.get(column.name, "")) for column in self._passthrough]
        texts = documents(items, ids, images, types, fields)
        _refuse_long(items, texts)
        if gaps := int(np.sum(items.gaps)):
            self.counts["null texts, written as gaps"] += gaps
        names = pa.concat_arrays([images, pc.binary_join_element_wise(keys, "json", ".")])
        order, last = _member_order(items)
        values.append(ByteRanges.joined([payloads, places(texts)])[order])
        return names.take(pa.array(order)), last

    def _unique(self, keys: pa.StringArray) -> pa.StringArray:
        """Return the keys in this tar; a repeated key gets a number after `+`, which no encoded key holds.

        The empty key always gets one: webdataset skips members without a key.
        """
        seen, names = self._keys, keys.to_pylist()
        new = dict.fromkeys(names, 1)
        if len(new) == len(names) and "" not in new and seen.keys().isdisjoint(new):
            seen.update(new)
            return keys
        for i, key in enumerate(names):
            again = seen[key] = seen.get(key, 0) + 1
            if again > 1 or not key:
                names[i] = f"{key}+{again}"
            if again > 1:
                self.counts["samples whose id another sample of the shard has"] += 1
        return pa.array(names, pa.string())

    def bytes_written(self) -> int:
        """Return the bytes written so far."""
        return int(self._writer.bytes_written())

    def held_bytes(self) -> int:
        """Return 0: the sink has every batch."""
        return 0

    def close(self) -> ShardFacts:
        """Finish the tar."""
        facts = self._writer.close()
        return ShardFacts(self._samples, facts.size_bytes, facts.payload_bytes)


def _passthrough(schema: pa.Schema) -> list[Passthrough]:
    """Return the passthrough columns. Raises Unrepresentable for a column that such a tar cannot hold."""
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if field.name in ("content_type", "text_content") and not (is_text(kind) or pa.types.is_null(kind)):
            raise Unrepresentable("this column of items holds text", column=field.name, expected="string",
                                  found=field.type)  # fmt: skip
    return [Passthrough.of(field) for field in schema if field.name not in RESERVED]


def _on_gap(items: Items, name: str, there: NDArray[np.bool_]) -> Clash | None:
    """Return a sample with a value of a column in a null text, which is a gap in the lists and gets no entry."""
    wrong = there & items.gaps
    if not wrong.any():
        return None
    item = int(np.argmax(wrong))
    sample = int(items.sample[item])
    return sample, Unrepresentable(
        "a text that is null is a gap in a tar, and holds no value", row=int(items.row[item]),
        sample=items.sample_id(sample), column=name,
        advice="Give it a text, which may be empty, or drop such rows, or write Parquet.",
    )  # fmt: skip


def _kinds(items: Items, there: NDArray[np.bool_], sample: int) -> set[str]:
    """Return modalities of the rows of a sample that have a value."""
    return {MODALITIES[kind] for kind in items.kind[there & (items.sample == sample)].tolist()}


def _parts(items: Items) -> list[int]:
    """Return bounds of parts, in samples, that are small enough to become JSON at once."""
    text = items.batch.select([name for name in items.batch.schema.names if name != "binary_content"])
    if text.nbytes + _ENTRY_BYTES * int(items.size.sum()) <= _PART_BYTES:
        return [0, len(items.size)]
    sizes = np.add.reduceat(row_bytes(text), items.bounds[:-1]) + _ENTRY_BYTES * items.size
    return [int(at) for at in split_rows(np.arange(len(sizes)), sizes, max_bytes=_PART_BYTES)]


def _image_names(items: Items, keys: pa.StringArray, types: ContentTypes) -> pa.StringArray:
    is_image = items.kind == IMAGE
    key = keys.take(pa.array(items.sample[is_image]))
    position = pa.array(items.position[is_image]).cast(pa.string())
    return pc.binary_join_element_wise(key, position, types.extensions(is_image), ".")


def _payloads(items: Items) -> ByteRanges:
    """Return the places of the images' bytes."""
    is_image = items.kind == IMAGE
    if items.ranges is not None:
        return items.ranges[items.row[is_image]]
    if not items.filled[is_image].any():
        return ByteRanges.absent(int(np.sum(is_image)))
    return places(items.batch.column("binary_content"))[items.row[is_image]]


def _misread(items: Items, types: ContentTypes, payloads: ByteRanges) -> NDArray[np.bool_]:
    """Return which items readers misread if their members have the extension of their type.

    A member with a JSON extension is a document, and readers take only the first frame of a TIFF.
    """
    images = np.flatnonzero(items.kind == IMAGE)
    called = types.extensions(items.kind == IMAGE)
    wrong = pc.equal(called, _JSON).to_numpy(zero_copy_only=False)
    tiffs = np.flatnonzero(pc.equal(called, _TIFF).to_numpy(zero_copy_only=False) & payloads.there)
    wrong[tiffs] = [not is_one_frame(data) for data in _each(payloads[tiffs])]
    found = np.zeros(len(items.kind), np.bool_)
    found[images] = wrong
    return found


def _each(payloads: ByteRanges) -> Iterator[memoryview]:
    """Yield the bytes of payloads, all in memory or all in files; from files one at a time, to limit memory."""
    if not payloads.in_file.all():
        yield from (view for view in payloads.views() if view is not None)
        return
    for i in range(len(payloads)):
        yield memoryview(in_memory(payloads[i : i + 1]).buffers()[2])


def _member_order(items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the written members in order, and the position of each JSON among them.

    Each sample has its images with bytes, then its JSON. Members are numbered: the images of all samples, and after
    them the JSON of each.
    """
    image = np.flatnonzero(items.kind == IMAGE)
    written = np.flatnonzero(items.filled[image])
    owner, samples = items.sample[image[written]], np.arange(len(items.size))
    order = np.empty(len(written) + len(samples), np.int64)
    order[np.arange(len(written)) + owner] = written
    last = np.cumsum(np.bincount(owner, minlength=len(samples))) + samples
    order[last] = len(image) + samples
    return order, last


def _refuse_long(items: Items, documents: pa.LargeStringArray) -> None:
    """Raise Unrepresentable for a sample whose JSON readers refuse by default."""
    sizes, most = byte_lengths(documents), DEFAULT_LIMITS.document_bytes
    if int(sizes.max(initial=0)) > most:
        sample = int(sizes.argmax())
        raise Unrepresentable(
            "the JSON of a sample is longer than readers accept", sample=items.sample_id(sample),
            expected=f"at most {most} bytes", found=int(sizes[sample]), advice="Write another format, such as parquet.",
        )  # fmt: skip
