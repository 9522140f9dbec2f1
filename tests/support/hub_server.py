"""A server of the Hugging Face Hub's API over repositories in memory, for the Hub's own client.

It serves datasets: their trees with pages, files by ranges with a redirect for large ones, and commits with LFS. It
says no to requests as the Hub does: private repositories are not there for others.

Source: huggingface_hub 2.4.0, hf_api.py, _commit_api.py, lfs.py, utils/_http.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from itertools import count
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from serving import AnsweringHandler, serving

TOKEN = "hf_owner"
LARGE = (".parquet", ".tar", ".arrow", ".zstd", ".mds", ".jpg")
"""Endings of files that the Hub keeps in LFS."""
Files = Mapping[str, bytes]
_NUMBERS = count()  # of commits: no two have one id, in whatever repository


@dataclass
class Repo:
    """A dataset's repository.

    Attributes:
        private: whether it is there for its owner alone.
        trees: files by path, of each commit.
        branches: commit by name.
        commits: title and changed paths of each commit, in order.
    """

    private: bool = False
    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    commits: list[tuple[str, list[str]]] = field(default_factory=list)

    def commit(self, title: str, files: Files, changed: list[str], branch: str = "main") -> str:
        """Put a commit on a branch, and return its id."""
        self.commits.append((title, changed))
        oid = hashlib.sha1(b"%d" % next(_NUMBERS)).hexdigest()
        self.trees[oid] = dict(files)
        self.branches[branch] = oid
        return oid

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the branch `main`."""
        return self.trees[self.branches["main"]]


class HubServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        repos: repositories by `ORG/NAME`.
        asked: method and path of every request.
        refused: statuses to answer with, by a part of `METHOD path`, each once, in place of an answer.
        uploaded: number of bytes that came into LFS.
        page: entries of a page of a tree.
        other: another name of this server, where large files are: tokens must not go there.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, Repo] = {}
        self.asked: list[tuple[str, str]] = []
        self.refused: dict[str, list[int]] = {}
        self.large: dict[str, bytes] = {}
        self.uploaded = 0
        self.page = 1000
        self.lock = Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.other = f"http://localhost:{self.server_address[1]}"

    def put(self, repo: str, files: Files, *, private: bool = False, branch: str = "main") -> str:
        """Make these files the state of a branch, and return the id of the commit."""
        held = self.repos.setdefault(repo, Repo(private))
        return held.commit("Upload", files, sorted(files), branch)

    def forget(self) -> None:
        """Begin anew, without repositories."""
        for held in (self.repos, self.asked, self.refused, self.large):
            held.clear()
        self.uploaded, self.page = 0, 1000

    def requests(self, part: str) -> int:
        """Return how many requests had this part in `METHOD path`."""
        return sum(part in f"{method} {path}" for method, path in self.asked)


class _Handler(AnsweringHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer
    disable_nagle_algorithm = True
    wbufsize = -1

    def _any(self) -> None:
        server = self.server
        with server.lock:
            server.asked.append((self.command, self.path))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b"".join(self._chunks())
            line = f"{self.command} {self.path}"
            for part, statuses in server.refused.items():
                if part in line and statuses:
                    self._answer(statuses.pop(0), {}, b"")
                    return
            self._route(urlsplit(self.path), body)

    do_GET = do_HEAD = do_POST = do_PUT = _any  # noqa: N815 - names of http.server

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _route(self, url: Any, body: bytes) -> None:
        path = unquote(url.path)
        if found := re.fullmatch(r"/large/(\w+)", path):
            self._large(found[1], body)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/whoami-v2":
            self._json({"name": "me", "type": "user", "orgs": []} if self._is_owner() else {}, 200)
        elif path == "/api/validate-yaml":
            wrong = "license: odd\n" in json.loads(body)["content"]
            errors = [{"message": '"license" must be one of [mit, other]'}] if wrong else []
            self._json({"errors": errors, "warnings": []}, 400 if wrong else 200)
        elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            self._batch(json.loads(body))
        elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/([\w-]+)(?:/(.*))?)?", path):
            repo = self._repo(found[1])
            if repo is not None:
                self._api(repo, found[1], found[2] or "", found[3] or "", url, body)
        elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/(.+)", path):
            repo = self._repo(found[1])
            if repo is not None:
                self._resolve(repo, found[2])
        else:
            self._missing("RepoNotFound")

    def _is_owner(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repo(self, name: str) -> Repo | None:
        repo = self.server.repos.get(name)
        if repo is None or (repo.private and not self._is_owner()):
            self._missing("RepoNotFound", 404 if self._is_owner() else 401)
            return None
        return repo

    def _commit_of(self, repo: Repo, revision: str) -> str | None:
        oid = repo.branches.get(revision, revision)
        if oid not in repo.trees:
            self._missing("RevisionNotFound")
            return None
        return oid

    def _api(self, repo: Repo, name: str, what: str, rest: str, url: Any, body: bytes) -> None:
        if what in ("", "revision"):
            oid = self._commit_of(repo, rest or "main")
            if oid is not None:
                files = [{"rfilename": path} for path in repo.trees[oid]]
                self._json({"id": name, "sha": oid, "private": repo.private, "siblings": files, "tags": []})
        elif what == "tree":
            self._tree(repo, rest, url)
        elif what == "paths-info":
            oid = self._commit_of(repo, rest)
            if oid is not None:
                wanted = parse_qs(body.decode()).get("paths", [])
                self._json([_entry(path, repo.trees[oid]) for path in wanted if _is_there(path, repo.trees[oid])])
        elif what == "preupload":
            self._preupload(repo, rest, json.loads(body))
        elif what == "commit":
            self._commit(repo, name, rest, [json.loads(line) for line in body.splitlines()])
        elif what == "branch":
            repo.branches.setdefault(rest, repo.branches["main"])
            self._json({})
        else:
            self._missing("EntryNotFound")

    def _tree(self, repo: Repo, rest: str, url: Any) -> None:
        revision, folder = _cut(repo, rest)
        oid = self._commit_of(repo, revision)
        if oid is None:
            return
        files, query = repo.trees[oid], parse_qs(url.query)
        lead = f"{folder}/" if folder else ""
        below = sorted(path for path in files if path.startswith(lead))
        if folder and not below:
            self._missing("EntryNotFound")
            return
        deep = query.get("recursive", ["false"])[0].lower() in ("true", "1")
        names: dict[str, None] = {}
        for path in below:
            parts = path[len(lead) :].split("/")
            steps = range(1, len(parts) + 1) if deep else [1]
            names |= dict.fromkeys(lead + "/".join(parts[:stop]) for stop in steps)
        first = int(query.get("cursor", ["0"])[0])
        page = [_entry(name, files) for name in [*names][first : first + self.server.page]]
        stop = first + self.server.page
        more = f"{self.server.url}{url.path}?recursive={deep}&cursor={stop}"
        self._json(page, headers={"Link": f'<{more}>; rel="next"'} if stop < len(names) else {})

    def _resolve(self, repo: Repo, rest: str) -> None:
        revision, path = _cut(repo, rest)
        oid = self._commit_of(repo, revision)
        if oid is None:
            return
        data = repo.trees[oid].get(path)
        if data is None:
            self._missing("EntryNotFound")
            return
        entry = _entry(path, repo.trees[oid])
        headers = {"X-Repo-Commit": oid, "ETag": f'"{entry["oid"]}"', "Accept-Ranges": "bytes"}
        if "lfs" in entry:
            digest = entry["lfs"]["oid"]
            self.server.large[digest] = data
            headers |= {"Location": f"{self.server.other}/large/{digest}", "X-Linked-Size": str(len(data)),
                        "X-Linked-ETag": f'"{digest}"'}  # fmt: skip
            self._answer(302, headers, b"")
            return
        self._ranged(data, headers)

    def _large(self, digest: str, body: bytes) -> None:
        assert "Authorization" not in self.headers
        if self.command == "PUT":
            assert hashlib.sha256(body).hexdigest() == digest
            self.server.large[digest] = body
            self.server.uploaded += len(body)
            self._answer(200, {"ETag": f'"{digest}"'}, b"")
        elif digest in self.server.large:
            self._ranged(self.server.large[digest], {"ETag": f'"{digest}"'})
        else:
            self._missing("EntryNotFound")

    def _ranged(self, data: bytes, headers: Mapping[str, str]) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, headers, data)
            return
        start, stop = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if start >= stop:
            self._answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            return
        self._answer(206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop])

    def _create(self, asked: Mapping[str, Any]) -> None:
        if not self._is_owner():
            self._answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}")
            return
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name.partition("/")[0] != "me":
            self._answer(403, {"X-Error-Message": "You have no rights in this namespace"}, b"{}")
            return
        taken = name in self.server.repos
        if not taken:
            private = asked.get("private") or asked.get("visibility") == "private"
            self.server.repos[name] = Repo(private=bool(private))
            self.server.repos[name].commit("initial commit", {".gitattributes": b""}, [])
        self._json({"url": f"{self.server.url}/datasets/{name}", "name": name}, 409 if taken else 200)

    def _preupload(self, repo: Repo, revision: str, asked: Mapping[str, Any]) -> None:
        oid = self._commit_of(repo, revision)
        if oid is None:
            return
        files = repo.trees[oid]
        answers = [
            {
                "path": one["path"],
                "uploadMode": "lfs" if _is_large(one["path"], one["size"]) else "regular",
                "shouldIgnore": False,
                **({"oid": _known(one["path"], files)} if one["path"] in files else {}),
            }
            for one in asked["files"]
        ]
        self._json({"files": answers})

    def _batch(self, asked: Mapping[str, Any]) -> None:
        objects = []
        for one in asked["objects"]:
            there = one["oid"] in self.server.large
            actions = {"actions": {"upload": {"href": f"{self.server.other}/large/{one['oid']}"}}}
            objects.append({"oid": one["oid"], "size": one["size"], **({} if there else actions)})
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, repo: Repo, name: str, revision: str, lines: list[Any]) -> None:
        oid = self._commit_of(repo, revision)
        if oid is None:
            return
        if not self._is_owner():
            self._answer(403, {"X-Error-Message": "You have no rights in this repository"}, b"{}")
            return
        files, changed, title = dict(repo.trees[oid]), [], ""
        for line in lines:
            kind, value = line["key"], line["value"]
            changed += [value["path"]] if "path" in value else []
            if kind == "header":
                title = value["summary"]
                if value.get("parentCommit", oid) != oid:
                    self._answer(412, {"X-Error-Message": "The branch has moved"}, b"{}")
                    return
            elif kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif kind == "deletedFile":
                del files[value["path"]]
            else:
                files = {path: data for path, data in files.items() if not path.startswith(value["path"])}
        made = repo.commit(title, files, changed, revision)
        self._json({"commitUrl": f"{self.server.url}/datasets/{name}/commit/{made}", "commitOid": made})

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._answer(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    def _missing(self, code: str, status: int = 404) -> None:
        self._answer(status, {"X-Error-Code": code, "X-Error-Message": code}, b"{}")


def _cut(repo: Repo, rest: str) -> tuple[str, str]:
    """Return revision and path of `REVISION/path`: a revision such as `refs/pr/1` has slashes."""
    known = [one for one in (*repo.branches, *repo.trees) if rest == one or rest.startswith(f"{one}/")]
    revision = max(known, key=len, default=rest.partition("/")[0])
    return revision, rest[len(revision) + 1 :]


def _is_large(path: str, size: int) -> bool:
    return path.endswith(LARGE) or size > 10 << 20


def _is_there(path: str, files: Files) -> bool:
    return path in files or any(one.startswith(f"{path}/") for one in files)


def _known(path: str, files: Files) -> str:
    """Return what the Hub says that a file holds: its SHA-256 in LFS, else git's SHA-1."""
    data = files[path]
    return hashlib.sha256(data).hexdigest() if _is_large(path, len(data)) else _git_hash(data)


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(path: str, files: Files) -> dict[str, Any]:
    if path not in files:
        return {"type": "directory", "path": path, "oid": _git_hash(path.encode()), "size": 0}
    data = files[path]
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _git_hash(data)}
    if _is_large(path, len(data)):
        digest = hashlib.sha256(data).hexdigest()
        entry |= {"oid": _git_hash(digest.encode()), "lfs": {"oid": digest, "size": len(data), "pointerSize": 134}}
    return entry


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A running server."""
    with serving(HubServer()) as server:
        yield server
