from __future__ import annotations

import errno
import json
import os
import sys
import warnings

import pytest
import typer

from lading._core.cli.output import Output, error_lines, json_text
from lading.errors import CorruptShard, SourceNotFound, StoreError

SALVAGE = "'lading salvage SRC DST' saves the intact samples.\n"


def status_of(error: BaseException | None, *, as_json: bool = False, debug: bool = False) -> int:
    """The exit status of a command that ends with this error."""
    try:
        with Output(as_json=as_json, debug=debug, interrupted="nothing is left at out"):
            if error is not None:
                raise error
    except typer.Exit as end:
        return end.exit_code
    return 0


@pytest.mark.parametrize(
    "error, status",
    [
        (None, 0),
        (CorruptShard("broken"), 1),
        (SourceNotFound("nothing there"), 2),
        (StoreError("no answer"), 3),
        (OSError(errno.EIO, "Input/output error"), 3),
        (MemoryError(), 3),
        (TypeError("a bug"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_end_has_its_status(error: BaseException | None, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(error) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_an_error_says_what_and_where_and_then_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    status_of(CorruptShard("bad header", file="a.tar", offset=512, expected=1, found=2, advice="Run 'lading verify'."))
    assert (
        capsys.readouterr().err
        == "error: a.tar @ 512: bad header; expected 1, found 2\n  Run 'lading verify'. " + SALVAGE
    )


def test_data_in_an_error_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    status_of(CorruptShard("bad", file="\x1b[2J[red]a\n.tar"))
    assert capsys.readouterr().err == "error: \\x1b[2J[red]a\\n.tar: bad\n  " + SALVAGE


def test_a_fault_of_our_own_is_one_line_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    status_of(TypeError("a bug"))
    printed = capsys.readouterr().err
    assert printed.startswith("error: internal error: TypeError: a bug\n")
    assert "--debug" in printed


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(TypeError("a bug"), debug=True) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_warnings_for_users_are_lines_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=False, debug=False):
        for _ in range(2):
            warnings.warn("a field \x1b[31mis missing", stacklevel=1)
    assert capsys.readouterr().err == "warning: a field \\x1b[31mis missing\n"


def test_with_json_an_error_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(CorruptShard("bad", file="a.tar", offset=512), as_json=True) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": "CorruptShard", "message": "bad", "file": "a.tar", "offset": 512}
    assert printed.out.count("\n") == 1  # of head every line of standard output is a document
    assert printed.err == "error: a.tar @ 512: bad\n  " + SALVAGE


def test_an_interrupted_command_says_what_it_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(KeyboardInterrupt(), debug=True) == 130
    assert capsys.readouterr().err == "interrupted: nothing is left at out\n"


def test_an_interrupted_command_that_only_reads_says_just_that(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end, Output(as_json=False, debug=False):
        raise KeyboardInterrupt
    assert (end.value.exit_code, capsys.readouterr().err) == (130, "interrupted\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("buffering", [1, -1], ids=["lines", "blocks"])
def test_a_full_disk_behind_standard_output_is_one_line(
    buffering: int, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(typer.Exit) as end, Output(as_json=as_json, debug=False, done="It is.") as out:
            out.show({"a": 1}, ["text"])
    assert end.value.exit_code == 3
    assert capsys.readouterr().err == "error: standard output: No space left on device\n  It is.\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_an_error_that_standard_output_has_no_room_for_is_told_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert status_of(CorruptShard("bad"), as_json=True) == 3
    assert capsys.readouterr().err == f"error: bad\n  {SALVAGE}error: standard output: No space left on device\n"


def test_a_command_s_own_status_holds_when_nobody_reads_on() -> None:
    with pytest.raises(typer.Exit) as end, Output(as_json=False, debug=False) as out:
        out.status = 1
    assert end.value.exit_code == 1


def test_results_are_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=False, debug=False) as out:
        out.show({"a": 1}, ["text [b]"])
    assert capsys.readouterr().out == "text [b]\n"
    with Output(as_json=True, debug=False) as out:
        out.print(["only for people"])
        out.show({"a": 1}, ["text"])
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_json_keeps_every_character_and_obeys_none() -> None:
    value = {"é": "\x1b\x9b\u202e\udc80\U000e0041\n日本"}
    text = json_text(value)
    assert json.loads(text) == value
    assert text.splitlines()[1] == '  "é": "\\u001b\\u009b\\u202e\\udc80\\udb40\\udc41\\n日本"'


def test_advice_stands_on_a_line_of_its_own() -> None:
    assert error_lines(CorruptShard("bad", advice="Do this.")) == ["bad", "Do this."]
    assert error_lines(CorruptShard("bad")) == ["bad"]
