from __future__ import annotations

from dataclasses import dataclass, fields

from lading._core.cli.formats import OptionDoc, option_docs
from lading._core.formats.format import NoOptions
from lading._core.formats.webdataset.reader import ReadOptions


@dataclass(frozen=True)
class Options:
    """How something is read.

    Attributes:
        size: bytes of a group,
            at `least` one.
        names: which to keep.
        predicate: a Python object, which no text gives.
        bare: said without a default.

    Raises:
        ValueError: a value is of another type.
    """

    size: int | str = 64
    names: tuple[str, ...] = ("a", "b")
    predicate: object = None
    bare: bool = False


def test_options_are_told_by_the_docstring_of_their_class() -> None:
    assert option_docs(Options) == [
        OptionDoc("size", 64, "bytes of a group, at least one."),
        OptionDoc("names", "a,b", "which to keep."),
        OptionDoc("bare", default=False, text="said without a default."),
    ]
    assert option_docs(NoOptions) == []


def test_options_whose_type_has_a_name_are_listed() -> None:
    assert [one.name for one in option_docs(ReadOptions)] == [one.name for one in fields(ReadOptions)]
