from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from lading._core.cli.text import Excerpt, columns, count, facts, plain, visible


def render(what: RenderableType, width: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined] # a StringIO


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain text", "plain text"),
        ("é 日本 🎉 a\u0301", "é 日本 🎉 a\u0301"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\r\nb\tc\x00\x7f", r"a\r\nb\tc\x00\x7f"),
        ("abc\u202edcb", r"abc\u202edcb"),
        ("\u2066\u2069\u200b\ufeff\u2028", r"\u2066\u2069\u200b\ufeff\u2028"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        ("[bold]no markup[/] :smile:", "[bold]no markup[/] :smile:"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_joiners_that_scripts_and_emoji_need_stay() -> None:
    assert visible("\U0001f469\u200d\U0001f680 می\u200cخواهم") == "\U0001f469\u200d\U0001f680 می\u200cخواهم"


def test_our_signs_have_counterparts_in_ascii_and_the_rest_is_spelled() -> None:
    assert plain("640×480 … – é \U0001f389 \udc80") == r"640x480 ... - \xe9 \U0001f389 \udc80"


def test_a_short_text_is_shown_as_it_is() -> None:
    assert render(Excerpt("one\n\n  two")) == ["one two"]


def test_a_long_text_is_cut_at_the_lines_allowed() -> None:
    lines = render(Excerpt("word " * 1000), 30)
    assert len(lines) == 2
    assert all(len(line) <= 30 for line in lines)
    assert lines[1].endswith("…")


def test_a_text_that_just_fits_is_not_cut() -> None:
    assert render(Excerpt("a" * 30 + " " + "b" * 30), 30) == ["a" * 30, "b" * 30]


def test_an_excerpt_looks_at_the_beginning_only_and_knows_that_there_is_more() -> None:
    assert render(Excerpt(" " * 10_000_000 + "end"), 30) == ["…"]


def test_a_whole_text_keeps_its_lines_and_is_still_not_obeyed() -> None:
    assert render(Excerpt("one\n\x1b[2Jtwo [b]", max_lines=0)) == ["one", r"\x1b[2Jtwo [b]"]


def test_wide_characters_are_measured_in_cells() -> None:
    lines = render(Excerpt("日本" * 100), 20)
    assert len(lines) == 2
    assert lines[0] == "日本" * 5


def test_tables_show_values_as_they_are() -> None:
    assert render(facts([("name", "value"), ("longer name", "x" * 40)]), 30)[0] == "name         value"
    assert render(columns(("a", "b"), [("[red]", "1")])) == ["a      b", "[red]  1"]


def test_counts_agree_with_their_nouns() -> None:
    assert [count(n, "shard") for n in (0, 1, 1204)] == ["0 shards", "1 shard", "1,204 shards"]
    assert count(2, "place differs", "places differ") == "2 places differ"
