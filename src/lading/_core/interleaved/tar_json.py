"""Convert item rows to the JSON of an interleaved tar, many samples at a time.

{"sample_id": …, "texts": […], "images": […], passthrough…, "__lading__": {"content_type": {"image 3": …}}}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.json_columns import is_json_type
from lading._core.arrow.json_text import glued, joined_runs
from lading._core.arrow.views import join
from lading._core.features.items import MODALITIES, content_type_of, extension_of
from lading._core.features.types import feature_of
from lading._core.interleaved.tar import column_name, field_name
from lading._core.interleaved.tar_items import IMAGE, METADATA, TEXT, Items, numbers
from lading._core.interleaved.tar_rows import EXTRAS_FIELD
from lading.errors import Unrepresentable
from lading.options import ROLES

__all__ = ["ContentTypes", "Passthrough", "documents", "kinds_of"]

_OWN_FIELDS = ("sample_id", "texts", "images", EXTRAS_FIELD)

_WITHOUT_BYTES = len(MODALITIES)
"""The kind of an image without bytes, for its content type."""


@dataclass(frozen=True, slots=True)
class ContentTypes:
    """The content types of items; each type is checked once.

    Attributes:
        known: the distinct types, and None.
        which: the index of each item's type among them.
        unusual: items whose type a reader cannot infer.
        hidden: items whose members do not show their type.
    """

    known: list[str | None]
    which: NDArray[np.int64]
    unusual: NDArray[np.bool_]
    hidden: NDArray[np.bool_]

    @classmethod
    def of(cls, items: Items) -> Self:
        """Return the content types of items."""
        types = items.texts("content_type").dictionary_encode()
        known = [*types.dictionary.to_pylist(), None]
        which = numbers(types.indices, without=len(known) - 1)[items.row]
        usual = np.empty((_WITHOUT_BYTES + 1, len(known)), np.bool_)
        usual[METADATA] = [kind == "application/json" for kind in known]
        usual[TEXT] = [kind == "text/plain" for kind in known]
        usual[IMAGE] = [kind == content_type_of("." + extension_of(kind)) for kind in known]
        usual[_WITHOUT_BYTES] = [kind is None for kind in known]
        kinds = np.where((items.kind == IMAGE) & ~items.filled, _WITHOUT_BYTES, items.kind)
        return cls(known, which, ~usual[kinds, which], np.zeros(len(kinds), np.bool_))

    def hiding(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the same, with the members of the chosen items not showing their type."""
        return replace(self, unusual=self.unusual | chosen, hidden=chosen)

    def extensions(self, chosen: NDArray[np.bool_]) -> pa.StringArray:
        """Return extensions of the members of the chosen items."""
        known = pa.array([extension_of(kind) for kind in [*self.known, None]], pa.string())
        return known.take(pa.array(np.where(self.hidden, len(self.known), self.which)[chosen]))

    def texts(self, chosen: NDArray[np.bool_]) -> pa.LargeStringArray:
        """Return JSON texts of the types of the chosen items."""
        return json_text.dumps_each(pa.array(self.known, pa.large_string())).take(pa.array(self.which[chosen]))


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A passthrough column.

    Attributes:
        name: name of the column.
        label: name of the field, as JSON text.
        is_json: whether its values are JSON texts.
    """

    name: str
    label: str
    is_json: bool

    @classmethod
    def of(cls, field: pa.Field) -> Self:
        """Return the column of this field.

        Raises:
            Unrepresentable: JSON cannot hold its type, or the field of its name is another one.
        """
        name = field_name(field.name)
        if name in _OWN_FIELDS:
            raise Unrepresentable(f"the JSON of a sample has a field {name!r} of its own", column=field.name)
        if column_name(name) != field.name:
            raise Unrepresentable(f"a reader would call this column {column_name(name)!r}", column=field.name)
        is_json = feature_of(field).is_json
        if not is_json and not is_json_type(field.type):
            raise Unrepresentable("JSON cannot hold this type exactly", column=field.name, found=field.type)
        return cls(field.name, json_text.dumps(name), is_json)

    def text(self, items: Items, role: str) -> pa.LargeStringArray | str:
        """Return the field of each sample, after a comma; empty for samples without a value."""
        there = items.there(self.name)
        if not there.any():
            return ""
        has = np.zeros(len(items.size), np.bool_)
        has[items.sample[there]] = True
        chosen = kinds_of(role)[items.kind] & ~items.gaps
        if role == "sample":
            row = np.full(len(items.size), -1)
            row[items.sample[chosen]] = items.row[chosen]
            return _where(has, glued(f", {self.label}: ", self._texts(items, row)))
        texts = _in_order(items, chosen, self._texts(items, items.row[chosen]))
        return _where(has, glued(f", {self.label}: [", texts, "]"))

    def _texts(self, items: Items, rows: NDArray[np.int64]) -> pa.LargeStringArray:
        """Return JSON texts of the values of rows; `null` for row −1."""
        column = join(items.batch.column(self.name))
        values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
        values = values.take(pa.array(rows, mask=rows < 0))
        return values.cast(pa.large_string()).fill_null("null") if self.is_json else json_text.dumps_each(values)


def kinds_of(role: str) -> NDArray[np.bool_]:
    """Return the modalities, as numbers, that have values in a passthrough column of this role."""
    return np.array([modality in ROLES.get(role, ("metadata",)) for modality in MODALITIES])


def documents(
    items: Items, ids: pa.Array, images: pa.Array, types: ContentTypes, fields: Iterable[tuple[Passthrough, str]]
) -> pa.LargeStringArray:
    """Return the JSON of each sample.

    Args:
        items: the rows.
        ids: `sample_id` of each sample.
        images: name of each image item.
        types: the content types of the items.
        fields: passthrough columns, and their roles.
    """
    is_text, is_image = items.kind == TEXT, items.kind == IMAGE
    texts = items.texts("text_content").take(pa.array(items.row[is_text]))
    listed = [
        _by_position(items, chosen, json_text.dumps_each(values))
        for chosen, values in ((is_text, texts), (is_image, images))
    ]
    more = [column.text(items, role) for column, role in fields]
    if types.unusual.any():
        more.append(_extras(items, types))
    start = glued('{"sample_id": ', json_text.dumps_each(ids), ', "texts": [')
    return glued(start, listed[0], '], "images": [', listed[1], "]", *more, "}")


def _by_position(items: Items, chosen: NDArray[np.bool_], texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return entries of each sample's list: JSON texts of the chosen items at their positions, else `null`.

    If several have one position, the last wins.
    """
    base = np.append(0, np.cumsum(items.size))
    entry = np.full(int(base[-1]), -1)
    entry[base[items.sample[chosen]] + items.position[chosen]] = np.arange(len(texts))
    return joined_runs(texts.take(pa.array(entry, mask=entry < 0)).fill_null("null"), base)


def _in_order(items: Items, chosen: NDArray[np.bool_], texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return entries of each sample's list: a JSON text for each chosen item."""
    return joined_runs(texts, np.append(0, np.cumsum(chosen))[items.bounds])


def _extras(items: Items, types: ContentTypes) -> pa.LargeStringArray:
    """Return the field for data that the lists cannot hold, after a comma; empty for samples without such data."""
    # Null texts may share a position: the last one's type is used.
    found = np.flatnonzero(types.unusual)
    place = np.stack([items.sample[found], items.position[found], items.kind[found]])
    stored = types.unusual.copy()
    stored[found[:-1][np.all(place[:, 1:] == place[:, :-1], axis=0)]] = False
    modality = pa.array(MODALITIES, pa.large_string()).take(pa.array(items.kind[stored]))
    position = pa.array(items.position[stored]).cast(pa.large_string())
    texts = _in_order(items, stored, glued('"', modality, " ", position, '": ', types.texts(stored)))
    has = np.zeros(len(items.size), np.bool_)
    has[items.sample[stored]] = True
    return _where(has, glued(f', {json_text.dumps(EXTRAS_FIELD)}: {{"content_type": {{', texts, "}}"))


def _where(condition: NDArray[np.bool_], texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return texts if condition.all() else pc.if_else(pa.array(condition), texts, pa.scalar("", pa.large_string()))
