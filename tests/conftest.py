"""Fixtures that every test may ask for."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Iterator
from functools import cache, partial
from importlib import resources
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from golden_cases import Golden, unpacked
from object_server import empty_server, object_server
from skips import NO_BROWSER
from soak import SOAK

# Nothing depends on wall-clock time: a machine that is busy is no failure. `make soak` tries more of everything.
_EXAMPLES = 300 if SOAK else 20
settings.register_profile(
    "lading",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SOAK,  # the same examples in each run: no change turns red by chance
    max_examples=_EXAMPLES,
)
settings.load_profile("lading")


class _Reporter:
    """Says which test failed, and how, when it does; at the end of a soak, one line says what it ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._tests, self._cases = config, set[str](), 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._tests.add(report.nodeid.partition("[")[0])
            self._cases += 1
        if report.failed:  # a run that is cut off never comes to its summary
            lines = report.longreprtext.splitlines()
            raised = [line for line in lines if line.startswith("E ")]
            text = "\n".join([f"\nFAILED {report.nodeid} ({report.when})", *raised[:_MOST_LINES], *lines[-1:]])
            writer = self._config.get_terminal_writer()
            writer.line(text)
            writer.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if SOAK:
            fuzz, seed = os.environ["LADING_FUZZ"], os.environ.get("LADING_FUZZ_SEED", "0")
            terminalreporter.write_line(
                f"soak: {self._cases:,} cases of {len(self._tests):,} tests; {int(fuzz):,} damaged files a format, "
                f"seed {seed}; {_EXAMPLES} examples of each law"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Name in the last line the tests that a missing browser skips."""
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    return (NO_BROWSER, "s", "SKIPPED") if NO_BROWSER in reason else None


_MOST_LINES = 20

os.environ.setdefault("NO_VCS_VERSION", "1")  # NeMo Curator would run git when it is imported

_WHOLE_JOBS = ("cli", "dataset", "interleaved", "interop", "jobs", "property", "storage", "testing", "train")
"""Folders in which a case of a test is a whole job, or a pass over a dataset: two cases of each, where `cases` says no
other number; so are those of the classes of the format kit."""
_FEW = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make soak` what is marked so, and of parametrised tests all cases but some.

    The checksums of their names choose the cases, so that no value of a parameter is left out because of its place.
    A test that is named on the command line (`test_file.py::test`) runs whole.
    """
    if SOAK:
        return
    named = [name.partition("[")[0] for name in config.args if "::" in name]
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set[pytest.Item]()
    for test, cases in by_test.items():
        if any(test.startswith(name) for name in named):
            continue
        left_out.update(case for case in cases if case.get_closest_marker("soak"))
        if (most := _most_cases(cases[0])) is not None:
            rest = sorted(set(cases) - left_out, key=lambda case: zlib.crc32(case.nodeid.encode()))
            left_out.update(rest[most:])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _most_cases(item: pytest.Item) -> int | None:
    if mark := item.get_closest_marker("cases"):
        found: int | None = mark.args[0]
        return found
    folder = item.path.relative_to(_TESTS).parts[0]
    return _FEW if folder in _WHOLE_JOBS or (folder == "formats" and item.nodeid.count("::") > 1) else None


_TESTS = Path(__file__).parent
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_started: list[str] = []


def _note_start(event: str, _: tuple[object, ...], starts: frozenset[str] = _STARTS) -> None:
    if event in starts:  # an argument: at the end of the interpreter modules lose their names
        _started.append(event)


sys.addaudithook(_note_start)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Refuse tests that start processes and do not say so: each costs as much as a hundred others."""
    before = len(_started)
    yield
    if len(_started) > before and not any(map(item.get_closest_marker, ("soak", "mechanism"))):
        pytest.fail("this test starts a process: mark it soak, or mechanism if no other test shows what it shows")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers' reports come to the process that started them
        config.pluginmanager.register(_Reporter(config))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """`golden("wds")`: the folder of a family's cases, unpacked once a run. Copy a case before changing it."""
    base = tmp_path_factory.getbasetemp()
    return partial(unpacked, base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="session", autouse=True)
def _own_index_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the index cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LADING_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _command_made_once() -> Iterator[None]:
    """Typer's runner makes the command anew for each call: verbs with 400 options, nine tenths of a short call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def _object_server() -> Iterator[str]:
    with object_server() as url:
        yield url


@pytest.fixture(scope="module")
def server(_object_server: str) -> str:
    """The URL of an object server with an empty bucket: started once a session, emptied for each module."""
    empty_server(_object_server)
    return _object_server


@pytest.fixture(scope="module")
def collected() -> Iterator[None]:
    """Close, at the end of a module, the files that a peer left open: another module's tests would fail for them."""
    yield
    gc.collect()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """The real documents that ship with the package: two tars in `docs/` below the test's folder."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for item in resources.files("lading._core.data").iterdir():
        if item.name.endswith(".tar"):
            (folder / item.name).write_bytes(item.read_bytes())
    return folder


@pytest.fixture(autouse=True)
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny sources are cut into tasks too, so that they test what large ones do; `test_sizes.py` does not.

    Worker processes get their tasks from this one.
    """
    monkeypatch.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 0)
