"""Only the page itself is answered, and nonsense in any part of a request is an error in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from documents import WIDE
from hostile import FAMILIES, Judge, source_of
from tars import tar_of
from view_client import BASE, TOKEN, viewing

PATHS = ["/", "/page/app.js", "/api/dataset", "/api/rows?start=0&stop=9", "/picture/other?number=0&column=png",
         "/raw?number=0&column=png"]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("safety") / "in.tar"
    path.write_bytes(tar_of(("a.png", WIDE), ("a.txt", b"\xff\xfe text"), ("a.json", b'{"a": 1e400, "b": "\\ud800"}')))
    with viewing(str(path)) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.cases(6)
def test_who_lacks_the_token_or_asks_under_another_name_gets_nothing(client: TestClient, path: str) -> None:
    stranger = TestClient(client.app, base_url=BASE)
    for given in (None, "guess", TOKEN[:-1], "", "ü" * 999):
        answer = stranger.get(path, params=None if given is None else {"token": given})
        assert (answer.status_code, list(answer.json())) == (403, ["error"])
    for host in (
        "evil.example",
        "evil.example:8421",
        "localhost.evil.example:8421",
        "127.0.0.1.evil.example",
        "",
        "localhost:8421@evil.example",
        "[::1]:8421:evil",
        "localhost:evil",
        "LOCALHOST:8421.evil",
    ):
        assert client.get(path, headers={"host": host}).status_code == 403, host
    for host in ("127.0.0.1:8421", "[::1]:8421"):
        assert client.get(path, headers={"host": host, "cookie": _cookies(client)}).status_code in (200, 400)


def _cookies(client: TestClient) -> str:
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def test_the_token_leaves_the_url_for_a_cookie_that_scripts_cannot_read(client: TestClient) -> None:
    fresh = TestClient(client.app, base_url=BASE, follow_redirects=False)
    assert fresh.get("/page/app.js", params={"token": TOKEN}).status_code == 403
    answer = fresh.get("/", params={"token": TOKEN, "where": "a == 1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?where=a+%3D%3D+1")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("lading-8421=")
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert "secret" not in cookie


def test_servers_of_two_ports_have_cookies_of_their_own(client: TestClient) -> None:
    other = TestClient(client.app, base_url="http://localhost:9000", cookies=dict(client.cookies))
    assert other.get("/api/dataset").status_code == 403
    other.get("/", params={"token": TOKEN})
    assert other.get("/api/dataset").status_code == 200
    assert {"lading-8421", "lading-9000"} <= set(other.cookies)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.cases(6)
def test_pages_of_others_get_nothing(client: TestClient, path: str) -> None:
    for site, mode in product(("cross-site", "same-site"), ("no-cors", "cors", "same-origin")):
        answer = client.get(path, headers={"sec-fetch-site": site, "sec-fetch-mode": mode})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
    opened = client.get(path, headers={"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"})
    assert opened.status_code == (200 if path == "/" else 403)
    for origin in ("http://evil.example", "http://localhost:8888", "null"):
        assert client.post(path, headers={"origin": origin}).status_code == 403
        assert client.post(path, headers={"origin": origin, "sec-fetch-site": "same-site"}).status_code == 403
    assert client.post(path, headers={"origin": BASE, "sec-fetch-site": "same-origin"}).status_code == 405


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.cases(6)
def test_every_answer_has_the_headers_of_safety(client: TestClient, path: str) -> None:
    for answer in (client.get(path), client.get(path, headers={"host": "evil"}), client.get(f"{path}/no")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "../app.py", "..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "/etc/passwd", "%2fetc%2fpasswd", "app.js%00",
        "app.js/", "app.py", "", ".", "app.js%2f..%2fapp.js", "\N{FULLWIDTH FULL STOP}./app.js", "x" * 5000,
    ],
)  # fmt: skip
@pytest.mark.cases(14)
def test_the_page_has_its_own_files_alone(client: TestClient, path: str) -> None:
    answer = client.get(f"/page/{path}")
    assert answer.status_code == 404
    assert "import" not in answer.text


WRONG = (
    "",
    "-1",
    "x",
    "1.5",
    "9" * 17,
    "9" * 5000,
    "%C2%B2",
    "%00",
    "%FF",
    "0x1",
    "1%20",
    "%F0%9F%92%A5",
    "keep@" + "9" * 5000,
    "label:%0D%0AA:b@1",
    'label:"@1',
)
QUESTIONS = {
    "/api/rows": ("start", "stop", "column", "where", "sample", "sort", "shuffle", "seed"),
    "/api/sample": ("number", "where", "sort"),
    "/api/count": ("wait", "where", "sample"),
    "/picture/thumbnail": ("number", "column", "item", "size"),
    "/picture/waveform": ("number", "column", "size"),
    "/raw": ("number", "column", "item"),
    "/api/find": ("key", "where"),
    "/api/statistics": ("where", "seen"),
    "/api/ids": ("start", "stop", "where"),
    "/api/marks": ("since",),
    "/api/differences": ("kind", "start", "stop"),
    "/api/row": ("file", "row"),
    "/marks/txt": ("of",),
    "/marks/csv": ("of",),
    "/marks/x": ("of",),
}


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.soak if path.startswith("/picture") else ()) for path in QUESTIONS]
)
@pytest.mark.cases(15)
def test_nonsense_is_an_error_in_words(client: TestClient, path: str) -> None:
    usual = {"start": "0", "stop": "9", "number": "0", "column": "png", "item": "0"}
    for name, value in product(QUESTIONS[path], WRONG):
        query = "&".join(f"{each}={given}" for each, given in {**usual, name: value}.items())
        answer = client.get(f"{path}?{query}")
        where = (path, name, value[:20], answer.text[:300])
        assert answer.status_code in (200, 400, 404, 415), where
        if answer.status_code not in (200, 415):
            error = answer.json()["error"]
            assert not any(word in error for word in ("Traceback", "internal", "Error:")), where


def test_values_that_json_lacks_are_sent(client: TestClient) -> None:
    found = client.get("/api/sample?number=0").json()["cells"]
    assert "text" in found["txt"]["text"]
    assert "1e400" in found["json"]["text"] or "Infinity" in found["json"]["text"]


@pytest.mark.parametrize(
    "where", ["(" * 5000, "a == " * 2000, "len(" * 500, "a.b" + ".c" * 5000 + " == 1", "not " * 10_000]
)
@pytest.mark.cases(5)
def test_absurd_conditions_are_errors(client: TestClient, where: str) -> None:
    answer = client.get("/api/count", params={"where": where})
    assert (answer.status_code, "internal" in answer.text) == (400, False), answer.text[:300]


def test_two_users_at_once(tmp_path: Path) -> None:
    rows = "".join(f'{{"n": {i}, "text": "{i}"}}\n' for i in range(3000))
    (tmp_path / "in.jsonl").write_text(rows)
    with viewing(str(tmp_path / "in.jsonl")) as one:
        other = TestClient(one.app, base_url=BASE)
        other.get("/", params={"token": TOKEN})

        def numbers(asked: tuple[TestClient, str, int]) -> list[int]:
            client, where, start = asked
            found = client.get("/api/rows", params={"where": where, "start": start, "stop": start + 20}).json()
            return [int(row["cells"]["n"]["text"]) for row in found["rows"]]

        asks = [
            (user, where, start) for start in range(0, 900, 60) for user, where in ((one, "n >= 1000"), (other, ""))
        ]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(numbers, asks))
        for (_, where, start), found in zip(asks, answers, strict=True):
            first = start + (1000 if where else 0)
            assert found == [*range(first, first + 20)]


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[object]:
    """All that the page asks of a hostile case; the folder is the current one."""
    with viewing(source_of(spec["open"])) as client:
        yield _found(client, "/api/dataset")
        for row in _found(client, "/api/rows", start=0, stop=60).get("rows", [])[:8]:
            for name, cell in _found(client, "/api/sample", number=row["number"]).get("cells", {}).items():
                for item, path in product(range(len(cell.get("items", "1"))), ("/raw", "/picture/thumbnail")):
                    _found(client, path, number=row["number"], column=name, item=item)
            yield row
        yield _found(client, "/api/count", wait=30)


def _found(client: TestClient, path: str, **asked: Any) -> Any:
    """An answer, which is data or an error in words."""
    answer = client.get(path, params=asked)
    assert b"internal error" not in answer.content, answer.text
    return answer.json() if path.startswith("/api/") else None


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_data_are_shown_or_an_error(golden: Callable[[str], Path], judge: Judge, family: str) -> None:
    wrong = [f"{case.name}: {problem}" for case in sorted(golden(family).iterdir()) for problem in judge(case)
             if not problem.startswith(("no error", "the error names none"))]  # fmt: skip
    assert wrong == []
