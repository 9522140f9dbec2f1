"""The command as its own process: statuses, closed pipes, signals, encodings, streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lading
from processes import busy_workers, gone
from tars import write_hollow_tar

_LADING = [sys.executable, "-c", "from lading._core.cli import run; run()"]
_HANGS_S = 600
"""After so long, a process is taken to hang on any machine."""


@pytest.fixture
def place(tmp_path: Path, docs: Path) -> Path:
    """A folder with the shipped shards in `docs/`."""
    return tmp_path


def start(place: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    settings = {**os.environ, "LADING_CACHE": str(place / "cache"), **environment}
    return subprocess.Popen([*_LADING, *words], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Status, output and errors; without the lines of progress, whose number is the machine's affair."""
    out, err = process.communicate(timeout=_HANGS_S)
    return process.returncode, out, re.sub(rb"(?m)^[a-z]+ing: \d+/\d+ shards?.*\n", b"", err)


def run(place: Path, *words: str, **environment: str) -> tuple[int, bytes, bytes]:
    return end(start(place, *words, **environment))


@pytest.mark.soak
def test_standard_output_is_json_and_nothing_else(place: Path) -> None:
    status, out, err = run(place, "convert", "docs", "out", "--to", "parquet", "--json")
    assert (status, err) == (0, b"")
    assert json.loads(out)["samples"] == 13
    status, out, err = run(place, "convert", "docs", "out", "--to", "parquet", "--json")
    assert status == 2
    assert json.loads(out)["error"] == "DestinationExists"
    assert err.startswith(b"error: out: ")


@pytest.mark.mechanism("a closed pipe")
def test_a_reader_that_has_enough_ends_it_quietly(place: Path) -> None:
    process = start(place, "head", "docs", "-n", "13", "--json", "--full")  # 2 MB: more than a pipe holds
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(10) == b'{"sample_i'
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=_HANGS_S) == 0
    process.stderr.close()


@pytest.mark.soak
def test_text_ends_quietly_too(place: Path) -> None:
    process = start(place, "head", "docs", "-n", "13", "--full")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=_HANGS_S) == 0
    process.stderr.close()


@pytest.mark.soak
@pytest.mark.parametrize("words", [["convert", "--help"], ["--help"], ["--version"]], ids=" ".join)
def test_pages_of_help_end_quietly_too(place: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen([*_LADING, *words], cwd=place, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=_HANGS_S) == 0
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            found = subprocess.run(
                [*_LADING, *words], stdout=full, stderr=subprocess.PIPE, timeout=_HANGS_S, check=False
            )
        assert (found.returncode, found.stderr) == (3, b"error: No space left on device\n")


@pytest.mark.soak
def test_a_job_goes_on_when_nobody_reads_its_standard_error(place: Path) -> None:
    process = start(place, "convert", "docs", "out", "--to", "parquet")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stderr.close()
    assert b"13 samples" in process.stdout.read()
    assert process.wait(timeout=_HANGS_S) == 0
    process.stdout.close()


@pytest.mark.mechanism("status and output of a command")
@pytest.mark.cases(1)
@pytest.mark.parametrize("damage", ["cut", "not a tar", "empty header"])
def test_bad_data_give_a_line_and_no_traceback(place: Path, damage: str) -> None:
    whole = (place / "docs" / "docs-00000.tar").read_bytes()
    data = {"cut": whole[:-300_000], "not a tar": b"hello " * 1000, "empty header": whole[:512] + b"x" * 2048}[damage]
    (place / "bad.tar").write_bytes(data)
    status, out, err = run(place, "convert", "bad.tar", "out", "--to", "parquet")
    assert status == 1
    assert out == b""
    assert b"bad.tar" in err
    assert b"Traceback" not in err
    assert err.count(b"\n") <= 2
    assert not (place / "out").exists()


@pytest.mark.soak
def test_debug_gives_the_traceback_and_the_same_status(place: Path) -> None:
    status, _, err = run(place, "info", "nowhere", "--debug")
    assert status == 2
    assert b"Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith(b"error: nowhere")


def hidden(place: Path) -> Iterator[Path]:
    """What a conversion builds beside its destination."""
    return (p for p in place.iterdir() if p.name.startswith(".") and "out" in p.name)


@pytest.mark.soak
@pytest.mark.parametrize(
    "existing, ending",
    [(True, signal.SIGINT), (False, signal.SIGINT), (True, signal.SIGTERM), (False, signal.SIGHUP)],
)
def test_an_interrupted_conversion_leaves_the_destination_as_it_was(
    place: Path, existing: bool, ending: signal.Signals
) -> None:
    write_hollow_tar(place / "large.tar", 96, 16 << 20)
    words = ["convert", "large.tar", "out", "--to", "webdataset", "--overwrite", "--max-batch-bytes", "16MB"]
    if existing:
        lading.convert(place / "docs", place / "out", format="parquet")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in place.rglob("*") if "out" in p.parts)
    process = start(place, *words)
    while process.poll() is None and not any(each.is_file() for p in hidden(place) for each in p.rglob("*")):
        time.sleep(0.002)  # until the first shard is being written
    process.send_signal(ending)
    status, _, err = end(process)
    assert status == 128 + ending
    assert err == b"interrupted: nothing half-written is left at out\n"
    assert sorted((p.name, p.stat().st_mtime_ns) for p in place.rglob("*") if "out" in p.parts) == before
    assert list(hidden(place)) == []


@pytest.mark.soak
def test_an_interrupt_while_the_module_loads_leaves_no_traceback(place: Path) -> None:
    (place / "pyarrow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-m", "lading", "info", "docs"]  # Python finds modules in the current folder first
    done = subprocess.run(command, cwd=place, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr in (b"", b"interrupted\n")


@pytest.mark.mechanism("a signal before and in a verb")
@pytest.mark.parametrize(
    "module, ending",
    [
        ("typer", signal.SIGHUP),
        ("lading._core.jobs.stats.info", signal.SIGTERM),
        ("lading._core.dataset.source.open", signal.SIGINT),
    ],
)
def test_who_interrupts_before_all_is_loaded_is_told_so_too(place: Path, module: str, ending: signal.Signals) -> None:
    """Before the verb has begun, and in it."""
    begun = f"""if True:
        import os, signal, sys
        sys.argv = ["/bin/lading", "info", "docs"]

        class Interrupts:
            def find_spec(self, name, *_):
                if name == "{module}":
                    os.kill(os.getpid(), {ending:d})

        sys.meta_path.insert(0, Interrupts())
        from lading._core.cli import run
        run()
        """
    done = subprocess.run([sys.executable, "-c", begun], cwd=place, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + ending, b"", b"interrupted\n")


@pytest.mark.mechanism("Ctrl-C while workers work")
@pytest.mark.cases(1)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_ends_the_workers_too(place: Path, ending: signal.Signals) -> None:
    for number in range(3):
        write_hollow_tar(place / f"large-{number}.tar", 96, 16 << 20)  # more than one process would do alone
    words = ["convert", "large-{0..2}.tar", "out", "--to", "webdataset", "--max-batch-bytes", "16MB"]
    process = start(place, *words, "--verify", "--workers", "2", "--threads", "1")  # to verify, workers start at once
    workers: list[int] = []
    while process.poll() is None and not workers:
        time.sleep(0.02)
        workers = busy_workers(process.pid)
    process.send_signal(ending)
    status, _, err = end(process)
    assert workers
    if ending == signal.SIGKILL:  # the next run removes what is left
        time.sleep(0.5)
        assert all(map(gone, workers))
        return
    assert status == 128 + ending
    assert err.splitlines()[-1] == b"interrupted: nothing half-written is left at out"
    assert all(map(gone, workers))
    assert list(hidden(place)) == []
    assert not (place / "out").exists()


@pytest.mark.soak
def test_bad_data_give_the_same_line_from_a_worker(place: Path) -> None:
    whole = (place / "docs" / "docs-00000.tar").read_bytes()
    for number in range(4):
        (place / f"{number}.tar").write_bytes(whole if number != 2 else whole[:-300_000])
    words = ["convert", "{0..3}.tar", "out", "--to", "webdataset", "--view", "samples", "--shard-size", "1MB"]
    told = [run(place, *words, "--verify", "--workers", workers) for workers in ("1", "2")]
    assert told[0] == told[1]
    assert told[0][0] == 1
    assert b"2.tar" in told[0][2]
    assert run(place, *words, "--workers", "0")[0] == 2


@pytest.mark.soak
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_will_do(place: Path, encoding: str) -> None:
    status, out, err = run(place, "head", "docs", "-n", "1", PYTHONIOENCODING=encoding, COLUMNS="100")
    assert (status, err) == (0, b"")
    assert b"png 1207x998" in out or "png 1207×998".encode(encoding) in out
    status, out, _ = run(place, "head", "docs", "-n", "13", "--json", PYTHONIOENCODING=encoding)
    assert status == 0
    assert all(json.loads(line.decode(encoding)) for line in out.splitlines())


@pytest.mark.soak
def test_a_closed_standard_output_is_no_trouble(place: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *_LADING, "info", "docs"],
        cwd=place,
        capture_output=True,
        timeout=_HANGS_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.soak
def test_colours_are_for_terminals_only(place: Path) -> None:
    _, out, _ = run(place, "info", "docs")
    assert b"\x1b" not in out
    _, out, _ = run(place, "info", "docs", FORCE_COLOR="1")
    assert b"\x1b" in out
    _, out, _ = run(place, "info", "docs", FORCE_COLOR="1", NO_COLOR="1")
    assert b"\x1b[3" not in out


@pytest.mark.mechanism("what a command imports")
@pytest.mark.cases(1)
@pytest.mark.parametrize("words", [["--help"], ["convert", "--help"], ["convert", "docs"]], ids=" ".join)
def test_help_and_wrong_calls_do_not_wait_for_arrow(place: Path, words: list[str]) -> None:
    code = (
        "import sys, atexit; sys.argv[0] = '/bin/lading'; from lading._core.cli.main import run; "
        "atexit.register(lambda: print(sorted({'pyarrow', 'numpy'} & sys.modules.keys()))); run()"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=place, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("[]\n")
