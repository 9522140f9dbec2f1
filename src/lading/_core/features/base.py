"""The base of all features: what callers may ask of a column's logical type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import pyarrow as pa

from lading._core.features.huggingface_types import Form
from lading._core.features.plain_values import weight_of_any
from lading.errors import WrongFeature

__all__ = ["Feature"]

_NULLS = frozenset((type(None),))


class Feature:
    """The logical type of a column.

    A feature knows its types, its form in other libraries, and how its values are encoded and decoded. Callers ask for
    the facts below, not for its class.
    """

    __slots__ = ()

    is_bytes: ClassVar[bool] = False
    """Whether bytes have no further meaning."""
    is_json: ClassVar[bool] = False
    """Whether values are JSON, as text."""
    medium: ClassVar[Literal["image", "audio", "video"] | None] = None
    """What encoded files the values are; None for other values."""
    is_content: ClassVar[bool] = True
    """Whether values count as content, in digests too."""
    is_scalar: ClassVar[bool] = False
    """Whether values are single plain values, which bytes hold as decimal text: numbers, labels, times."""
    is_text: ClassVar[bool] = False
    """Whether values are texts, which bytes hold in UTF-8."""
    is_costly: ClassVar[bool] = False
    """Whether encoding a value takes long: then threads pay off."""

    @property
    def kind(self) -> str:
        """Return the name of the type that users see, such as `image`, `text`, `label`, `int64`, `list<text>`."""
        return type(self).__name__.lower()

    @property
    def is_media(self) -> bool:
        """Return whether values are encoded images, audio or video."""
        return self.medium is not None

    @property
    def type_name(self) -> str | None:
        """Return Arrow's name of the type of plain values, without storage variants; None for other features."""
        return None

    @property
    def is_value(self) -> bool:
        """Return whether values are plain values of an Arrow type, other than texts, bytes and labels."""
        return self.type_name is not None

    @property
    def image_format(self) -> str | None:
        """Return the format into which arrays and changed images are encoded; None if no format is asked for."""
        return None

    @property
    def is_written_as_text(self) -> bool:
        """Return whether bytes with this feature are text: of texts, JSON and numbers."""
        return self.is_text or self.is_json or self.is_scalar

    @property
    def mds_encoding(self) -> str | None:
        """Return MDS's name of the encoding of values; None for other features."""
        return None

    @property
    def array(self) -> tuple[str | None, tuple[int | None, ...] | None] | None:
        """Return dtype and shape of arrays, each None if it differs between values; None for other features."""
        return None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Return the names of the numbers from 0; None for other features than labels."""
        return None

    @property
    def item(self) -> Feature | None:
        """Return the feature of the items of lists; None for other features."""
        return None

    @property
    def children(self) -> tuple[tuple[str, Feature], ...] | None:
        """Return the fields of structs; None for other features."""
        return None

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged, whatever they hold."""
        return _NULLS

    @property
    def may_change(self) -> bool:
        """Return whether values may be mutable objects, or files that disappear."""
        return True

    def leaves(self) -> Iterator[Feature]:
        """Yield the feature itself, or those at the bottom of its lists and structs."""
        yield self

    def leaf_values(self, value: Any, name: str) -> Iterator[tuple[str, Feature, Any]]:
        """Yield the values inside a stored value that are not None, with their feature and the name of their field."""
        if value is not None:
            yield name, self, value

    def changed(self, value: Any, change: Callable[[Feature, Any], Any]) -> Any:
        """Return a value with a function applied to its values at the bottom of lists and structs."""
        return change(self, value)

    def with_leaves(self, change: Callable[[Feature], Feature]) -> Feature:
        """Return the feature with a function applied to the features at the bottom of lists and structs."""
        return change(self)

    def normal(self) -> Feature:
        """Return the feature in the spelling that a field of its type gives back: `Value("string")` is `Text`."""
        return self

    def typed(self, leaf_type: Callable[[Feature], pa.DataType]) -> pa.DataType:
        """Return the type of a column, by a function that gives the types at the bottom of lists and structs."""
        return leaf_type(self)

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature.

        Example:
            Sequence(Value("int32")).to_arrow_type()  # list<item: int32>

        Raises:
            WrongFeature: values of the feature can only be read.

        Source: stable-datasets b20399a (schema.py).
        """
        raise WrongFeature("columns of this feature can only be read", found=str(self))

    def natural_type(self) -> pa.DataType | None:
        """Return the type in which formats with types store its bytes; None if that is bytes."""
        return None

    def huggingface(self, kind: pa.DataType) -> Form | None:  # noqa: ARG002 - as of all features
        """Return the form of a column of this type in datasets; None if the type alone decides it."""
        return None

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature, because of its names, types or sizes."""

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON, as `lading.feature` holds it."""
        return {"kind": type(self).__name__.lower()}

    def encode(self, value: Any, assets: str | None, /) -> Any:  # noqa: ARG002 - as of all features
        """Return what a column stores for a value that is not None: see `encode`."""
        raise WrongFeature("values of this feature are not made of Python values", found=type(self).__name__)

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value that is not None: see `decode`."""
        return value

    def unpickle(self, value: Any) -> Any:
        """Return the Python value of a stored value that is not None, which may be a pickle."""
        return self.decode(value)

    def check_column(self, column: Any) -> None:
        """Raise Unrepresentable for a value that the feature does not allow, although its type does."""

    def leaf_columns(self, column: Any) -> Iterator[tuple[Feature, Any]]:
        """Yield the columns inside the lists and structs of a column of this feature, with their feature."""
        yield self, column

    def stores_unchanged(self, values: list[Any]) -> bool:
        """Return whether a column stores all of these values unchanged."""
        return self.unchanged.issuperset(map(type, values))

    def weigher(self) -> Callable[[Any], int] | None:
        """Return the function from an encoded value to its approximate bytes; None if they do not matter."""
        return weight_of_any
