"""Options of the view `interleaved`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from lading.errors import UsageError
from lading.features.items import RESERVED
from lading.options import check_types

__all__ = ["AUTO", "ROLES", "InterleavedOptions", "tell_absent", "tell_unnamed"]

AUTO = "auto"
"""`sample_id_field`: take the JSON's `sample_id` where the first documents have one, else the JSON member's stem."""

ROLES = {"image": ("image",), "text": ("text",), "item": ("text", "image")}
"""Roles of fields that are lists of one entry an item, and the modalities of these items; the option of a role is
`per_{role}_fields`."""


@dataclass(frozen=True, slots=True)
class InterleavedOptions:
    """How interleaved samples are read. Names and defaults are those of NeMo Curator's readers, where it has them.

    Attributes:
        fields: passthrough columns to keep; None keeps all, absent ones come as nulls.
        per_image_fields: JSON fields with one entry an image; entry i goes to the i-th image.
        per_text_fields: JSON fields with one entry a text.
        per_item_fields: JSON fields with one entry a text or image, in the order of positions.
        sample_id_field: JSON field that names the sample; None: the JSON member's base name less its extension.
        image_member_field: JSON field that names the member of a sample's default image.
        texts_field: JSON field with the texts by position.
        images_field: JSON field with the images by position.
        json_extensions: endings of JSON members, in any case.
        image_extensions: endings tried for a sample's default image, in this order.
        unreferenced: a member that no JSON names is an error, or is dropped and counted.
    """

    fields: tuple[str, ...] | None = None
    per_image_fields: tuple[str, ...] = ()
    per_text_fields: tuple[str, ...] = ()
    per_item_fields: tuple[str, ...] = ()
    sample_id_field: str | None = AUTO
    image_member_field: str | None = None
    texts_field: str = "texts"
    images_field: str = "images"
    json_extensions: tuple[str, ...] = (".json",)
    image_extensions: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif")
    unreferenced: Literal["error", "drop"] = "error"

    @property
    def roles(self) -> dict[str, str]:
        """The role of every field that is a list with one entry an item."""
        return dict(self._listed())

    def _listed(self) -> list[tuple[str, str]]:
        return [(name, role) for role in ROLES for name in getattr(self, f"per_{role}_fields")]

    def __post_init__(self) -> None:
        """Refuse options of other types, and those that contradict each other."""
        check_types(type(self), {option.name: getattr(self, option.name) for option in fields(self)})
        taken = {self.texts_field, self.images_field, self.sample_id_field, self.image_member_field, *self.roles}
        for name, role in self._listed():
            if self.roles[name] != role:
                raise UsageError("a field has entries for one kind of items", found=f"{name!r} in two options")
        for name in self.fields or ():
            if name in RESERVED:
                raise UsageError("a reserved column is always there", found=f"fields={name!r}")
            if name in taken:
                raise UsageError("this field is named by another option", found=f"fields={name!r}")
        if self.unreferenced not in ("error", "drop"):
            raise UsageError("no such policy", expected="error or drop", found=f"unreferenced={self.unreferenced!r}")


def tell_absent(fields: Iterable[str], path: str, counts: Counter[str]) -> None:
    """Warn of fields that were asked for and that no sample of a shard has; count the shard for each."""
    for name in fields:
        warnings.warn(f"{path}: no sample has the field {name!r}; it is null", stacklevel=2)
        counts[f"shards without the field {name!r}, null there"] += 1


def tell_unnamed(field: str, path: str, counts: Counter[str]) -> None:
    """Warn of a field of ids that no sample of a shard has; count the shard."""
    warnings.warn(f"{path}: no sample has the field {field!r}; they are called as their JSON members", stacklevel=2)
    counts[f"shards without the field {field!r}, whose samples are called as their JSON members"] += 1
