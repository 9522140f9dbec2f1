"""Forms of results in JSON, where the Python type of a field says less, or another one.

`lading skill --schema VERB` and the tables of `docs/json.md` are made from the types of results. The type of a field is
`Annotated[T, InJson(U)]` if it is U in JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Required, TypeAlias, TypedDict

__all__ = [
    "BadShardList", "Columns", "Differences", "ErrorJson", "ErrorList", "InJson", "LostRowList",
    "LostTails", "ShuffleJson", "TopValues",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class InJson:
    """The type of a value in JSON, as an annotation of its type in Python."""

    kind: Any


_Value: TypeAlias = str | int | bool


class ErrorJson(TypedDict, total=False):
    """An error: what is wrong, where, and what to do. Keys without a value are left out.

    Attributes:
        error: class of the error, as in `lading.errors`.
        message: the problem, in a few words.
        file: path or URL.
        offset: byte in the file; in the unwrapped stream of a compressed file.
        row: row of the table, or number of the sample.
        sample: key of the sample.
        column: column or field.
        expected: the expected value.
        found: the found value.
        advice: what to do next.
        details: further problems of the same kind.
        level: of findings of `verify`: `problem` makes the exit status 1, `note` does not.
    """

    error: Required[str]
    message: Required[str]
    file: str
    offset: int
    row: int
    sample: str
    column: str
    expected: _Value
    found: _Value
    advice: str
    details: list[str]
    level: Literal["problem", "note"]


class BadShardJson(TypedDict):
    """A shard that cannot be read to its end.

    Attributes:
        file: path or URL.
        error: the reason.
    """

    file: str
    error: ErrorJson


class LostRowJson(TypedDict, total=False):
    """A row that was filtered or lost. Keys without a value are left out.

    Attributes:
        file: path or URL of the shard.
        files: the shards, if they are several.
        row: number of the row in the shard, from 0.
        __key__: key of the sample.
        sample_id: id of the document.
        position: position of the item in its document.
        modality: modality of the item.
        reason: a short phrase, the same for all rows of a kind.
        outcome: `filtered`, `dropped` or `kept without payload`; with the whole sample, the outcome says so.
        detail: the problem of this row.
    """

    file: str
    files: list[str]
    row: int
    __key__: str | None
    sample_id: str | None
    position: int | None
    modality: str | None
    reason: Required[str]
    outcome: Required[str]
    detail: str


class LostTailJson(TypedDict):
    """A file whose end is lost.

    Attributes:
        file: path or URL.
        offset: the first lost byte.
    """

    file: str
    offset: int


class ColumnJson(TypedDict):
    """A column.

    Attributes:
        name: name of the column.
        type: Arrow type; `reference` for bytes of files.
        kind: `image`, `label`, `int64` …
    """

    name: str
    type: str
    kind: str


class ItemDifferenceJson(TypedDict):
    """An item in which two documents differ.

    Attributes:
        position: position of the item.
        modality: modality of the item.
        fields: names of the fields that differ.
        only_in: `A` or `B`, if the other document lacks the item.
    """

    position: int
    modality: str
    fields: list[str]
    only_in: NotRequired[Literal["A", "B"]]


class DifferenceJson(TypedDict):
    """A sample in which two datasets differ.

    Attributes:
        samples: number of the sample in A and in B; null where it is missing.
        keys: key of the sample in A and in B.
        fields: names of the fields that differ.
        items: the items that differ, of two documents with one id.
    """

    samples: tuple[int | None, int | None]
    keys: tuple[str | None, str | None]
    fields: list[str]
    items: NotRequired[list[ItemDifferenceJson]]


class TopValueJson(TypedDict):
    """A frequent value.

    Attributes:
        value: the value.
        count: number of times.
    """

    value: Any
    count: int


class ShuffleJson(TypedDict):
    """How an epoch is shuffled.

    Attributes:
        kind: kind of the shuffle.
        block: largest number of samples in a block; for blocks alone, as all keys below.
        window: blocks that a lane shuffles at once.
        lanes: parts that ranks read alone.
    """

    kind: Literal["none", "global", "block"]
    block: NotRequired[int]
    window: NotRequired[int]
    lanes: NotRequired[int]


_Entries: TypeAlias = Sequence[Mapping[str, Any]]
BadShardList: TypeAlias = Annotated[_Entries, InJson(list[BadShardJson])]
Columns: TypeAlias = Annotated[list[tuple[str, str, str]], InJson(list[ColumnJson])]
Differences: TypeAlias = Annotated[_Entries, InJson(list[DifferenceJson])]
ErrorList: TypeAlias = Annotated[_Entries, InJson(list[ErrorJson])]
LostRowList: TypeAlias = Annotated[_Entries, InJson(list[LostRowJson])]
LostTails: TypeAlias = Annotated[_Entries, InJson(list[LostTailJson])]
TopValues: TypeAlias = Annotated[tuple[tuple[Any, int], ...], InJson(list[TopValueJson])]
