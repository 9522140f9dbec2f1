"""Fixtures that every test may ask for."""

from __future__ import annotations

import functools
import gc
import tarfile
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from golden_cases import ARCHIVES, Golden
from object_server import empty_server, object_server
from soak import SOAK

# Nothing depends on wall-clock time: a machine that is busy is no failure. `make soak` tries more of everything.
settings.register_profile(
    "lading",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=300 if SOAK else 20,
)
settings.load_profile("lading")


class _AtOnce:
    """Says which test failed, and how, when it does: a run that is cut off never comes to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.splitlines()
            raised = [line for line in lines if line.startswith("E ")]
            text = "\n".join([f"\nFAILED {report.nodeid} ({report.when})", *raised[:_MOST_LINES], *lines[-1:]])
            writer = self._config.get_terminal_writer()
            writer.line(text)
            writer.flush()


_MOST_LINES = 20


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked `one_in(n)`, run the first of its cases and one in n of the others; in a soak all.

    A sum of its name chooses a case, so that no value of a parameter is left out because of its place.
    """
    known, left_out = set[str](), list[pytest.Item]()
    for item in items if not SOAK else ():
        mark, test = item.get_closest_marker("one_in"), item.nodeid.partition("[")[0]
        if mark is not None and test in known and zlib.crc32(item.nodeid.encode()) % mark.args[0]:
            left_out.append(item)
        known.add(test)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers' reports come to the process that started them
        config.pluginmanager.register(_AtOnce(config))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """`golden("wds")`: the folder of a family's cases, unpacked once a session. Copy a case before changing it."""
    unpacked: dict[str, Path] = {}

    def family(name: str) -> Path:
        if name not in unpacked:
            folder = tmp_path_factory.mktemp(f"golden-{name}")
            with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
            unpacked[name] = folder
        return unpacked[name]

    return family


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
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
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
    for item in resources.files("lading.data").iterdir():
        if item.name.endswith(".tar"):
            (folder / item.name).write_bytes(item.read_bytes())
    return folder


@pytest.fixture(autouse=True)
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny sources are cut into tasks too, so that they test what large ones do; `tests/jobs/test_sizes.py` does not.

    Worker processes get their tasks from this one.
    """
    monkeypatch.setattr("lading.jobs.tasks.ALONE_BYTES", 0)
