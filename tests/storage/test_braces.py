"""Names of brace patterns: those that braceexpand 0.1.7 gives, its documented examples among them."""

from __future__ import annotations

import pytest

from lading._core.storage.braces import expand_braces
from lading.errors import UsageError


@pytest.mark.parametrize(
    "pattern, names",
    [
        ("a.tar", ["a.tar"]),
        ("a-{00..02}.tar", ["a-00.tar", "a-01.tar", "a-02.tar"]),
        ("a-{9..11}.tar", ["a-9.tar", "a-10.tar", "a-11.tar"]),
        ("{train,val}-{0..1}.tar", ["train-0.tar", "train-1.tar", "val-0.tar", "val-1.tar"]),
        ("a{b}c.tar", ["a{b}c.tar"]),
        ("{}", ["{}"]),
        ("a-{2..0}.tar", ["a-2.tar", "a-1.tar", "a-0.tar"]),
        ("item{1..3}", ["item1", "item2", "item3"]),
        ("{a..c}", ["a", "b", "c"]),
        ("index.html{,.backup}", ["index.html", "index.html.backup"]),
        ("python{2.{5..7},3.{2,3}}", ["python2.5", "python2.6", "python2.7", "python3.2", "python3.3"]),
        ("{07..10}", ["07", "08", "09", "10"]),
        ("{a..g..2}", ["a", "c", "e", "g"]),
        ("{4..1}", ["4", "3", "2", "1"]),
        ("{2..-1}", ["2", "1", "0", "-1"]),
        ("{a,{b,c}}.tar", ["a.tar", "b.tar", "c.tar"]),
        ("{0..8..4}", ["0", "4", "8"]),
        ("{8..0..-4}", ["8", "4", "0"]),
        ("{1..3..0}", ["1", "2", "3"]),
        ("{4..4}", ["4"]),
        ("{8..010}", ["008", "009", "010"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{b..Y}", ["b", "a", "Z", "Y"]),
        ("{a{1,2}}", ["{a1}", "{a2}"]),
        ("{{a,b},c}{x}", ["a{x}", "b{x}", "c{x}"]),
        ("{1..3,5}", ["1..3", "5"]),
        ("{1...3}{1..b}", ["{1...3}{1..b}"]),
    ],
)
def test_braces(pattern: str, names: list[str]) -> None:
    assert list(expand_braces(pattern)) == names


def test_braces_are_bounded() -> None:
    with pytest.raises(UsageError, match="too many"):
        next(expand_braces("{0..99999}{0..99999}"))
    with pytest.raises(UsageError, match="too many"):
        next(expand_braces("a-{0..99999999999999999999}.tar"))
    assert list(expand_braces("{99999999999999999998..99999999999999999999}")) == ["9" * 19 + "8", "9" * 20]
    endless = "{0.." + "9" * 5000 + "}"
    assert list(expand_braces(endless)) == [endless]  # the name of no file


@pytest.mark.parametrize("pattern, names", [
    ("{1{2,3}", ["{12", "{13"]), ("2,3}{a,b", ["2,3}{a,b"]), ("a},{1..2}", ["a},1", "a},2"]),
])  # fmt: skip
def test_a_brace_without_its_other_stands_for_itself_as_in_a_shell(pattern: str, names: list[str]) -> None:
    """For braceexpand it is an error."""
    assert list(expand_braces(pattern)) == names


def test_patterns_of_any_length_and_some_depth() -> None:
    assert list(expand_braces("{0..0}" * 2000)) == ["0" * 2000]
    assert list(expand_braces("{a," * 300 + "b" + "}" * 300)) == ["a"] * 300 + ["b"]
    for literal in ("{" * 2000, "}" * 2000, "{" * 300 + "}" * 300, "{}" * 2000):
        assert list(expand_braces(literal)) == [literal]
    with pytest.raises(UsageError, match="too many"):
        next(expand_braces("{0..9}" * 2000))


@pytest.mark.parametrize("begin", ["{a,", "{a,x", "{", "{{0..1},"])
def test_braces_that_nest_too_deep(begin: str) -> None:
    """They would take a time that grows with the square of their depth."""
    with pytest.raises(UsageError, match="too deep"):
        next(expand_braces(begin * 301 + "b" + "}" * 301))
