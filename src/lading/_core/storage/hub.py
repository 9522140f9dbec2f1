"""Files of repositories on Hugging Face's Hub: `hf://datasets/ORG/NAME[@REVISION]/PATH`.

What users name is pinned (`pinned`): the commit takes the place of the branch, for all processes that read the dataset.
Files of a commit never change, so its listing, 1,000 files a request, says all about them. A file by a branch is looked
up by one request. The version is the SHA-256 of a large file, and git's SHA-1 of a small one.

A large file is read from the address to which the Hub redirects. It is signed, without the token, for some time.

Repositories are read. `lading push` writes them, in one commit.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from lading._core.storage.base import Buffer, FileInfo, check_inside, check_version
from lading._core.storage.concurrent import concurrent_map
from lading._core.storage.fsspec import FsspecSink, FsspecStore, exactly, own_errors
from lading._core.storage.retries import TRANSIENT_STATUS
from lading.errors import NotFound, StoreError, UsageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["REPOSITORY", "HubStore", "hub_errors", "unpinned"]

_T = TypeVar("_T")

REPOSITORY: Final = re.compile(
    r"hf://datasets/(?P<repo>[^/@]+/[^/@:]+)(?:@(?P<revision>(?:refs/[^/]+/)?[^/]+))?(?:/(?P<path>.*))?"
)
"""A dataset's repository, or a file in it. A revision is a branch, a tag, a commit, or `refs/pr/1`."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_PIN: Final = re.compile(r"^(hf://datasets/[^/@]+/[^/@]+)@[0-9a-f]{40}(?=/|$)")
_KINDS: Final = ("datasets/", "spaces/", "models/", "buckets/")
_KNOWN: Final = 4096
"""Addresses that are remembered."""
_LISTED: Final = 200_000
"""Files of commits that are remembered."""
_MOVED: Final = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE))
"""Answers of an address whose time is over."""


def unpinned(url: str) -> str:
    """Return a URL without the commit: with a version of its content, a file is the same in all commits."""
    return _PIN.sub(r"\1", url)


class HubStore(FsspecStore):
    """Files of the Hub.

    Args:
        place: `hf://datasets`; of other kinds of repositories, and of buckets, all is left to the Hub's file system.
        options: `token`, `endpoint`, `retry_s`, `timeout_s`, and what the Hub's file system takes.
    """

    def __init__(self, place: str, *, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(place, options=options)
        self._listed: dict[str, FileInfo] = {}  # of commits
        self._seen: dict[tuple[str, str], tuple[FileInfo, str]] = {}  # by path and version, with their commits
        self._addresses: dict[str, str] = {}

    @property
    def api(self) -> HfApi:
        """The Hub's client, with the token and the endpoint of the options. Raises MissingExtra."""
        _ = self.fs  # which says how to install the package
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._options.get("endpoint"), token=self._options.get("token"))

    def pinned(self, url: str) -> str:
        """Return a URL with the commit in place of the branch or tag; of anything but a dataset's, the URL itself.

        Raises:
            NotFound: there is no such repository or revision.
        """
        found = REPOSITORY.match(url)
        if found is None or _is_commit(found["revision"]):
            return url
        repo, revision = found["repo"], found["revision"]
        ask = partial(self.api.dataset_info, repo, revision=revision and unquote(revision))
        commit, rest = self.ask(ask, url).sha, url[found.end("repo") :]
        return f"hf://datasets/{repo}@{commit}{rest.removeprefix(f'@{revision}')}"

    def ask(self, call: Callable[[], _T], url: str, *, is_first: bool = True) -> _T:
        """Return the result of a call of the Hub's client. What failed in a transient way is repeated.

        Args:
            call: the call.
            url: what it is about, for errors.
            is_first: whether it takes moments.
        """

        def asked() -> _T:
            with hub_errors(url):
                try:
                    return call()
                except RuntimeError as error:  # of an upload: its cause is the answer
                    raise (error.__cause__ or error) from None

        return self._retries.call(asked, url, is_first=is_first)

    def head(self, path: str) -> FileInfo:
        """Return size and version; of a commit that was listed, without a request. Raises NotFound."""
        found = REPOSITORY.fullmatch(path)
        if found is None or not found["path"]:
            return super().head(path)
        return self._listed.get(path) or self._look_up(path, found)[0]

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield every file below a folder, by path in code-point order."""
        for info in super().walk(prefix):
            found = REPOSITORY.fullmatch(info.path)
            if found is not None and _is_commit(found["revision"]) and len(self._listed) < _LISTED:
                self._listed[info.path] = info
            yield info

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one `bytes` per range, requested concurrently. What failed in a transient way is repeated."""
        found = REPOSITORY.fullmatch(path)
        if found is None:
            return super().get_ranges(path, ranges, version)
        info, commit = self._located(path, found, version)
        check_version(path, version, info.version)
        check_inside(path, ranges, info.size_bytes)
        url = self._url(found, commit)
        calls = [partial(self._read, path, url, offset, length) for offset, length in ranges if length]
        first = [calls.pop(0)()] if calls and url not in self._addresses else []  # it finds the address
        answers = iter([*first, *(concurrent_map(calls, remote=True) if calls else ())])
        return [next(answers) if length else b"" for _, length in ranges]

    def _located(self, path: str, found: re.Match[str], version: str) -> tuple[FileInfo, str]:
        """Return what is known of a file, and a commit that has it in this version."""
        if _is_commit(found["revision"]):
            return self.head(path), found["revision"]
        return self._seen.get((path, version)) or self._look_up(path, found)

    def _look_up(self, path: str, found: re.Match[str]) -> tuple[FileInfo, str]:
        ask = partial(self.api.get_hf_file_metadata, url=self._url(found, found["revision"]))
        told = self.ask(ask, path)
        if told.size is None or told.etag is None or told.commit_hash is None:
            raise StoreError("the server does not say how long the file is", file=path, advice="Download it first.")
        info, commit = FileInfo(path, told.size, told.etag), told.commit_hash
        if len(self._seen) >= _KNOWN:
            self._seen.clear()
        self._seen[path, info.version] = info, commit
        return info, commit

    def _url(self, found: re.Match[str], revision: str | None) -> str:
        from huggingface_hub import hf_hub_url

        revision = revision and unquote(revision)
        return hf_hub_url(
            found["repo"], found["path"], repo_type="dataset", revision=revision, endpoint=self.api.endpoint
        )

    def _read(self, path: str, url: str, offset: int, length: int) -> Buffer:
        address = self._addresses.get(url)
        if address is not None:
            try:
                return self._retries.call(partial(self._ask_range, path, address, offset, length), path)
            except _Moved:
                self._addresses.pop(url, None)
        return self._retries.call(partial(self._ask_range, path, url, offset, length), path)

    def _ask_range(self, path: str, url: str, offset: int, length: int) -> Buffer:
        from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined] # public names

        own = urlsplit(url).netloc == urlsplit(self.api.endpoint).netloc
        headers = build_hf_headers(token=self._options.get("token")) if own else {}
        headers |= {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        with hub_errors(path):
            answer = get_session().get(url, headers=headers, timeout=self._options.get("timeout_s", 60))
        if not own and answer.status_code in _MOVED:
            raise _Moved("the address of the file is no longer valid", file=path)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:  # the client's errors would name the signed URL
            raise _answered(answer.status_code, path)
        if urlsplit(str(answer.url)).netloc != urlsplit(url).netloc:
            if len(self._addresses) >= _KNOWN:
                self._addresses.clear()
            self._addresses[url] = str(answer.url)
        elif answer.status_code == HTTPStatus.OK:  # of a small file
            return exactly(path, offset, length, answer.content[offset:][:length])
        return exactly(path, offset, length, answer.content)

    def put_stream(self, path: str) -> FsspecSink:
        """Refuse a file of a repository: each would be a commit. Return a sink for a file of a bucket."""
        if REPOSITORY.fullmatch(path) is not None:
            raise UsageError("a repository of the Hub is written in one commit", file=path,
                             advice="Write with 'lading push', or ds.push.")  # fmt: skip
        return super().put_stream(path)

    def _errors(self, path: str) -> AbstractContextManager[None]:
        return hub_errors(path)


def _is_commit(revision: str | None) -> bool:
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def _answered(status: int, path: str) -> StoreError:
    error = StoreError(f"the Hub answers {status}", file=path)
    error.errno = errno.EAGAIN if status in TRANSIENT_STATUS else None
    return error


class _Moved(StoreError):
    """The address of a file's bytes is no longer valid."""


@contextmanager
def hub_errors(path: str) -> Iterator[None]:
    """Convert errors of the Hub's client into lading's own, which say what they mean, and what to do."""
    try:
        with own_errors(path):
            yield
    except StoreError as error:
        told = _told(error, path)
        if told is error:
            raise
        raise told from error.__cause__


def _told(error: StoreError, path: str) -> StoreError:
    """Return the error that says what an answer of the Hub means; the error itself if nothing more is known."""
    cause, found = error.__cause__, REPOSITORY.match(path)
    cause = cause.__cause__ if type(cause) is FileNotFoundError and cause.__cause__ is not None else cause
    kind, repo = type(cause).__name__, found["repo"] if found else ""
    status = getattr(getattr(cause, "response", None), "status_code", None)
    told = error if status is None else _answered(status, path)
    if kind == "RepositoryNotFoundError":
        known = path.removeprefix("hf://").startswith(_KINDS)
        advice = _LOG_IN if known else f"For a dataset, write hf://datasets/{path.removeprefix('hf://')}."
        told = NotFound("no such repository, or a private one", file=path, found=repo or "a model", advice=advice)
    elif kind == "RevisionNotFoundError":
        told = NotFound("no such revision of the repository", file=path, expected="a branch, a tag or a commit",
                        found=found["revision"] if found else None)  # fmt: skip
    elif kind.endswith("EntryNotFoundError"):
        told = NotFound("no such file", file=path)
    elif kind == "GatedRepoError":
        told = StoreError("the repository asks for an agreement", file=path, found=repo,
                          advice=f"Accept it on the page of the dataset {repo}. {_LOG_IN}")  # fmt: skip
    elif "Offline" in kind:
        told = StoreError("HF_HUB_OFFLINE is set: the Hub is not asked", file=path, advice=_downloaded(repo))
    elif status is not None:
        told.found = getattr(cause, "server_message", None)
        told.advice = _LOG_IN if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) else None
        if status == HTTPStatus.PRECONDITION_FAILED:
            told.advice = "Somebody else committed meanwhile. Push again: what is uploaded is not uploaded again."
    return told


_LOG_IN = "Log in with 'hf auth login', set HF_TOKEN, or give the storage option token."


def _downloaded(repo: str) -> str:
    """Where the newest downloaded copy of a repository is; else how to get one."""
    with suppress(Exception):  # the library has many for a copy that is not there
        from huggingface_hub import snapshot_download

        return f"Open the downloaded copy: {snapshot_download(repo, repo_type='dataset', local_files_only=True)}"
    return "Unset it, or download a copy first, with huggingface_hub.snapshot_download."
