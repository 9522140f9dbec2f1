"""URLs with secrets, and the form in which lading holds, shows and writes them.

    https://user:password@host/a.tar        https://…@host/a.tar
    https://host/a.tar?X-Amz-Signature=…    https://host/a.tar?…
    https://host/get?id=7                   https://host/get?…2f8e07c8d2a1

`shown` gives the form on the right: sources, references, messages and files have nothing else. This process remembers
the secrets, and stores ask for `whole` when they make a request. A URL crosses to another process with its secret if it
is pickled as `shown` gave it, or with `Stores.for_workers`.

The digits tell queries of one path apart. They are a hash of the query without the names of signatures, so a URL that
is signed anew keeps its form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from itertools import count
from typing import Any, Final

from lading.errors import NotFound, UsageError

__all__ = ["KnownSecrets", "cleaned", "shown", "whole"]

_MARK: Final = "…"
_WEB: Final = ("http", "https")
_LOCAL: Final = ("file", "local", "memory")
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.DOTALL)
"""Scheme, authority, path, and what follows `?` or `#`."""
_SECRET: Final = re.compile(r"[?#@]")
_TELLING: Final = re.compile(r"[?#&][\w.-]*(?:sig|token|secret|passw|credential|key)[\w.-]*=", re.IGNORECASE)
"""In URLs that are not of the web, `?` and `#` may be part of a name or a pattern."""
_SIGNED: Final = re.compile(r"[?&](?:x-(?:amz|goog|oss)-signature|signature|sig)=", re.IGNORECASE)
_SIGNING: Final = re.compile(
    r"x-(?:amz|goog|oss)-.*|signature|expires|policy|key-pair-id|\w*accesskeyid|googleaccessid"
    r"|s[veprsti]|srt|spr|sip|sig|sdd|sk[tesv]|skoid|sktid|saoid|suoid|scid",
    re.IGNORECASE,
)
"""Names of a signed query of S3, Google, CloudFront, OSS and Azure that say nothing of the file."""
_USERS: Final = re.compile(r"(?<=://)[^/\s\"'@]*@")
_QUERIES: Final = re.compile(r"(https?://[^\s\"'<>?#]*)[?#][^\s\"'<>]*", re.IGNORECASE)

_known: dict[str, str] = {}
"""Users with their passwords by scheme, mark and host; queries by the whole shown URL."""


class _Shown(str):
    """A URL as it is shown, which takes its secret along when it is pickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return shown, (whole(self),)


class KnownSecrets:
    """All secrets that this process knows, when it is pickled; then the other process knows them."""

    def __len__(self) -> int:
        return len(_known)

    def __reduce__(self) -> tuple[Any, ...]:
        return _learn, (dict(_known),)


def shown(url: str) -> str:
    """Return a URL without user, password and query; other paths unchanged. Remembers what is left out."""
    if _SECRET.search(url) is None or (found := _PARTS.fullmatch(url)) is None or found[1].lower() in _LOCAL:
        return url
    scheme, authority, path, tail = found.groups()
    is_web = scheme.lower() in _WEB
    user, at, host = authority.rpartition("@")
    hides_user = bool(at) and not user.startswith(_MARK) and (is_web or ":" in user)
    hides_tail = len(tail) > 1 and not tail.startswith(f"?{_MARK}") and bool(is_web or _TELLING.search(tail))
    if not hides_user and not hides_tail:
        return url
    if hides_user:
        authority = _remember_user(scheme, user, host)
    if hides_tail:
        mark = f"?{_MARK}{_digits(tail)}"
        # Whoever signs many files signs their folder: a pattern's query is that of all its names.
        _known[f"{scheme}://{authority}{'' if '{' in path else path}{mark}"] = tail
        tail = mark
    return _Shown(f"{scheme}://{authority}{path}{tail}")


def whole(url: str) -> str:
    """Return the URL to ask for, of one that `shown` gave.

    Raises:
        NotFound: the path goes on behind a query.
        UsageError: this process was not given the URL with its secret.
    """
    if _MARK not in url or (found := _PARTS.fullmatch(url)) is None:
        return url
    scheme, authority, path, tail = found.groups()
    user, _, host = authority.rpartition("@")
    full = authority
    if user.startswith(_MARK):
        full = f"{_recall(url, f'{scheme}://{authority}', 'user and password')}@{host}"
    if tail.startswith(f"?{_MARK}"):
        if "/" in tail:
            raise NotFound("nothing lies below a URL with a query", file=url)
        of_pattern = f"{scheme}://{authority}{tail}"
        tail = _recall(url, url if url in _known else of_pattern, "query")
    return f"{scheme}://{full}{path}{tail}"


def cleaned(text: str) -> str:
    """Return a message of another library with its URLs as they are shown."""
    return _QUERIES.sub(rf"\1?{_MARK}", _USERS.sub("", text))


def _learn(known: Mapping[str, str]) -> KnownSecrets:
    _known.update(known)
    return KnownSecrets()


def _remember_user(scheme: str, user: str, host: str) -> str:
    """The authority as it is shown. Several users of one host are numbered."""
    for number in count(1):
        authority = f"{_MARK}{number if number > 1 else ''}@{host}"
        if _known.setdefault(f"{scheme}://{authority}", user) == user:
            return authority
    raise AssertionError("numbers have no end")


def _recall(url: str, key: str, what: str) -> str:
    if key not in _known:
        raise UsageError(
            f"the URL needs its {what}, which lading never writes down", file=url,
            advice="Give the whole URL again: as the source, or with --root URL if data refer to it.",
        )  # fmt: skip
    return _known[key]


def _digits(tail: str) -> str:
    """A hash of what a query says besides its signature; empty if it says nothing else."""
    said = [one for one in re.split("[?&#]", tail) if one]
    if _SIGNED.search(tail):
        said = [one for one in said if not _SIGNING.fullmatch(one.partition("=")[0])]
    return sha256("&".join(said).encode(errors="surrogatepass")).hexdigest()[:12] if said else ""
