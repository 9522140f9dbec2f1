"""`ds.show()`: the page out of Python and notebooks."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

import lading
from lading.errors import MissingExtra, StoreError, UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from lading._core.view.show import ShownDataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


@pytest.fixture
def ds() -> lading.Dataset:
    return lading.open(pa.table({"__key__": ["a", "b", "c"], "n": [1, 2, 3]}))


@pytest.fixture
def page(ds: lading.Dataset) -> Iterator[ShownDataset]:
    outer = 10
    made = ds.map(lambda sample: {"m": sample["n"] * outer}).where("m > 10").show(browser=False)
    yield made
    made.close()


def _rows(page: ShownDataset) -> Any:
    with httpx.Client(base_url=page.url.partition("?")[0], follow_redirects=True, timeout=60) as client:
        assert client.get(page.url).status_code == 200
        counted = client.get("/api/count?wait=20&where=m+<+30").json()
        assert (counted["count"], counted["command"], counted["python"]) == (1, None, "ds.where('m < 30')")
        return client.get("/api/rows?start=0&stop=9").json()["rows"]


@pytest.mark.soak
def test_a_dataset_with_functions_is_shown_by_this_process(page: ShownDataset) -> None:
    assert [(row["key"], row["cells"]["m"]["text"]) for row in _rows(page)] == [("b", "20"), ("c", "30")]
    assert repr(page) == f"pyarrow.Table: {page.url}"
    html = page._repr_html_()
    assert f'href="{page.url}"' in html
    assert f'src="{page.url.replace("127.0.0.1", "localhost")}"' in html
    page.close()
    page.close()
    assert repr(page) == page._repr_html_() == "pyarrow.Table: closed"
    with pytest.raises(httpx.ConnectError):
        httpx.get(page.url)


@pytest.mark.soak
def test_ctrl_c_closes_the_page_that_a_program_waits_for(page: ShownDataset) -> None:
    main = threading.main_thread().ident
    threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT]).start()
    page.wait()
    assert repr(page) == "pyarrow.Table: closed"


def test_a_wrong_or_taken_port_is_an_error(ds: lading.Dataset) -> None:
    for port in (0, 65_536, True, "8421"):
        with pytest.raises(UsageError, match="a port is a whole number"):
            ds.show(port)  # type: ignore[arg-type]
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(StoreError, match="cannot listen"):
            ds.show(other.getsockname()[1], browser=False)


def test_a_step_with_a_missing_column_is_an_error(ds: lading.Dataset) -> None:
    for shown, other in ((ds.select("absent"), None), (ds, ds.drop("absent"))):
        with pytest.raises(UsageError, match=r"no such column; expected .*n, found 'absent'"):
            shown.show(compare=other, browser=False)


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_a_missing_package_says_how_to_install_it(
    ds: lading.Dataset, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lading._core.view.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Absent(package), *sys.meta_path])
    with pytest.raises(MissingExtra, match=rf"{package}, which is not installed.*pip install 'lading\[view\]'"):
        ds.show(browser=False)


class _Absent:
    """Finds no module of a package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for modules of the package."""
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self._package)


@pytest.mark.soak
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_cell_of_a_notebook_shows_the_page(chromium: Browser, page: ShownDataset, host: str) -> None:
    """The notebook is at another port of this machine, under either of its names."""

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page._repr_html_().encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Notebook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = chromium.new_context().new_page()
        tab.goto(f"http://{host}:{server.server_port}/")
        frame = tab.frame_locator("iframe")
        frame.locator("[data-key='b']").wait_for(timeout=20_000)
        frame.locator("[data-key='b']").focus()
        tab.keyboard.press("k")
        frame.locator("[data-key='b'][data-mark=keep]").wait_for(timeout=20_000)
        assert re.match(rf"http://{host}:", tab.frames[1].url)
        tab.context.close()
        server.shutdown()
