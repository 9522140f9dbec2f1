"""Options of object stores as users write them: one set of names for obstore and for the packages of fsspec.

    endpoint, region, anonymous, timeout_s, retry_s                     any object store
    access_key_id, secret_access_key, session_token, profile            S3
    token_file                                                          Google Cloud Storage
    account_name, account_key, sas_token                                Azure
    cache_dir, cache_limit, gap_bytes                                   any remote store
    backend                                                             obstore or fsspec

A name of this list that a store has no use for is left out. Other names go to the backend as they are. Messages name
options, never their values: values may be secrets.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import urlsplit

from lading._core.secret_urls import shown
from lading._core.units import parse_bytes
from lading.errors import UsageError

__all__ = [
    "KINDS",
    "NAMES",
    "Options",
    "by_prefix",
    "check_endpoint",
    "client_settings",
    "for_fsspec",
    "for_obstore",
    "of_url",
    "refuse_unknown",
    "with_cache",
    "without_values",
]

NAMES: Final = ("endpoint", "region", "anonymous", "access_key_id", "secret_access_key", "session_token", "profile",
                "account_name", "account_key", "sas_token", "token_file", "timeout_s", "retry_s",
                "backend", "cache_dir", "cache_limit", "gap_bytes")  # fmt: skip
"""Names that mean the same whatever opens the store."""

_BACKENDS: Final = ("obstore", "fsspec")
KINDS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure",
                "http": "http", "https": "http"}  # fmt: skip
"""Kinds of stores by scheme; each is an extra of lading, too."""
_OBSTORE: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {
        **{name: name for name in ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")},
        "anonymous": "skip_signature",
        "profile": "profile",
    },
    "gcs": {"endpoint": "base_url", "anonymous": "skip_signature", "token_file": "service_account"},
    "azure": {
        **{name: name for name in ("endpoint", "account_name", "account_key")},
        "anonymous": "skip_signature",
        "sas_token": "sas_key",
    },
    "http": {},
}
"""Names of obstore by ours."""
_CLIENT: Final = frozenset(
    ("allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "pool_idle_timeout",
     "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate",
     "read_timeout", "user_agent")
)  # fmt: skip
"""Names of obstore that are about connections."""
_FSSPEC: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {"endpoint": "endpoint_url", "anonymous": "anon", "access_key_id": "key", "secret_access_key": "secret",
           "session_token": "token", "profile": "profile"},
    "gcs": {"endpoint": "endpoint_url", "token_file": "token"},
    "azure": {"anonymous": "anon", "account_name": "account_name", "account_key": "account_key",
              "sas_token": "sas_token"},
}  # fmt: skip
"""Names of s3fs, gcsfs and adlfs by ours."""
_OF_FSSPEC: Final = ("use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache")
"""Names that every file system takes."""
_LEAST_GAP: Final = 8 << 10
"""A store with a smaller one would count as near (`_core.storage.concurrent.is_remote`)."""
_CLOSE: Final = 0.8
_SECRET_LENGTH: Final = 4
"""Values from this length are taken out of messages of a backend."""


class Options(dict[str, Any]):
    """Options of one store, which can be the key of a cache."""

    def __hash__(self) -> int:  # type: ignore[override] # never changed once made
        return hash(tuple(sorted((name, repr(value)) for name, value in self.items())))

    def __repr__(self) -> str:
        return f"Options({', '.join(self)})"


_NO_TIMEOUT: Final = timedelta(days=7)
"""Of a whole request: by default obstore ends a large slow one after 30 seconds."""


def by_prefix(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return options by prefix of the URL, `""` for those of all URLs.

    Args:
        given: options by name; or by a URL prefix, and then by name: `{"s3://a": {"region": "eu-west-1"}}`.

    Raises:
        UsageError: not a dict of these; a value that its name cannot have.
    """
    if not isinstance(given, Mapping):
        raise UsageError("storage options are a dict", found=type(given).__name__)
    found: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise UsageError("storage options have names", found=repr(name)[:80])
        if "://" in name:
            if not isinstance(value, Mapping):
                raise UsageError("storage options of a URL are a dict", found=f"{shown(name)}: {type(value).__name__}")
            found.setdefault(shown(name), {}).update(value)
        else:
            found.setdefault("", {})[name] = value
    for options in found.values():
        _check(options)
        _settle(options)
    return found


def with_cache(
    storage_options: Mapping[str, Any] | None, cache_dir: str | os.PathLike[str] | None, cache_limit: int | str | None
) -> Mapping[str, Any] | None:
    """Return storage options with the cache that other arguments name. Raises UsageError."""
    if cache_dir is None:
        if cache_limit is not None:
            raise UsageError("cache_limit is given without a cache", advice="Name a folder: cache_dir=….")
        return storage_options
    limit = {} if cache_limit is None else {"cache_limit": cache_limit}
    return {**(storage_options or {}), "cache_dir": cache_dir, **limit}


def of_url(options: Mapping[str, Mapping[str, Any]], url: str) -> Options:
    """Return the options of a URL: those of all URLs, then those of its prefixes; the longest prefix wins.

    A prefix ends where a name ends: options of `s3://a` are not those of `s3://ab`.
    """
    prefixes = (p for p in options if not p or url == p or url.startswith(p if p.endswith("/") else f"{p}/"))
    return Options({name: value for p in sorted(prefixes, key=len) for name, value in options[p].items()})


def for_obstore(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under the names of obstore; `timeout_s`, `retry_s` and `profile` stay as they are."""
    names = _OBSTORE[KINDS[scheme]]
    found: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for name, value in options.items():
        if name in names:
            found[names[name]] = value if isinstance(value, bool) else str(value)
        elif name in ("timeout_s", "retry_s"):
            found[name] = float(value)
        elif name in _CLIENT:
            client[name] = value
        elif name not in NAMES:
            found[name] = value
    return {**found, "client_options": client} if client else found


def for_fsspec(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under the names of the package of fsspec that serves a scheme.

    Raises:
        UsageError: an option that the package does not have; the error names the closest.
    """
    if not options:
        return {}
    options = {**_timeouts(scheme, options), **options}
    kind = KINDS.get(scheme, "")
    kind = kind if kind in _FSSPEC else ""
    names = _FSSPEC.get(kind, {})
    own = {name: value for name, value in options.items() if name not in NAMES}
    found = {names[name]: value for name, value in options.items() if name in names}
    if kind == "s3":
        if "region" in options:
            found["client_kwargs"] = {"region_name": options["region"], **own.pop("client_kwargs", {})}
        if "timeout_s" in options:
            times = dict.fromkeys(("connect_timeout", "read_timeout"), float(options["timeout_s"]))
            once = {"retries": {"max_attempts": 0}}  # s3fs repeats requests, too
            found["config_kwargs"] = {**times, **once, **own.pop("config_kwargs", {})}
    elif kind == "gcs" and options.get("anonymous"):
        found["token"] = "anon"  # noqa: S105 - the name of no token
    elif not kind:  # ours may be names of this package too
        known = set(_arguments(scheme))
        found = {name: value for name, value in options.items() if name in NAMES and name in known}
    if own:
        known = {*_arguments(scheme), *_OF_FSSPEC}
        # Others than these three may hand on names that their signature lacks: there only slips of the pen show.
        named = own if kind else [name for name in own if get_close_matches(name, known, 1, _CLOSE)]
        refuse_unknown(named, known, scheme)
    return {**found, **own}


def refuse_unknown(names: Collection[str], known: Collection[str], scheme: str, backend: str = "fsspec") -> None:
    """Raise UsageError for the first name that is not known; the error names the closest one."""
    for name in names:
        if name not in known:
            kind = KINDS.get(scheme, "")
            ours = [*_OBSTORE.get(kind, {}), "timeout_s", "retry_s", "backend"]
            close = get_close_matches(name, [*ours, *known], 1)
            advice = f"Did you mean {close[0]}?" if close else None
            if advice is None and backend == "obstore":
                advice = "Names of s3fs, gcsfs or adlfs need backend=fsspec as a further storage option."
            raise UsageError(f"no such storage option of {scheme}://", expected=", ".join(ours), found=name,
                             advice=advice)  # fmt: skip


def without_values(text: str, options: Mapping[str, Any]) -> str:
    """Return the first line of a message of a backend, without values of options."""
    line = text.splitlines()[0] if text else ""
    for value in map(str, options.values()):
        if len(value) >= _SECRET_LENGTH:
            line = line.replace(value, "…")
    return line


def client_settings(endpoint: str, timeout_s: float, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of obstore about connections to a server."""
    waits = {"read_timeout": timedelta(seconds=timeout_s), "timeout": _NO_TIMEOUT}
    return {**waits, "allow_http": endpoint.startswith("http://"), **more}


def _timeouts(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The option `timeout_s` under the names of a package that has an argument for it; of s3fs see `for_fsspec`."""
    if "timeout_s" not in options:
        return {}
    seconds, kind = float(options["timeout_s"]), KINDS.get(scheme)
    if kind == "http":
        from aiohttp import ClientTimeout

        return {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)}}
    names = {None: ("timeout",), "azure": ("connection_timeout", "read_timeout")}.get(kind, ())
    return dict.fromkeys(sorted({*names}.intersection(_arguments(scheme))), seconds) if names else {}


def check_endpoint(endpoint: str) -> None:
    """Raise UsageError for the URL of a server without a scheme or a host, such as `localhost:9000`."""
    url = urlsplit(endpoint)
    with suppress(ValueError):
        if url.hostname and (url.port is None or url.port):
            return
    raise UsageError("the endpoint is not a URL", expected="http://HOST:PORT or https://HOST",
                     found="no scheme or no host",
                     advice="Write the scheme in --storage-option endpoint=URL, or in AWS_ENDPOINT_URL.")  # fmt: skip


def _check(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name == "backend" and value not in _BACKENDS:
            raise UsageError("no such backend", expected=" or ".join(_BACKENDS), found="another name")
        if name == "endpoint":
            check_endpoint(str(value))
        if name == "anonymous" and not isinstance(value, bool):
            raise UsageError("neither true nor false", expected="anonymous=true", found="another value")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in ("timeout_s", "retry_s") and not (number and value > 0):
            raise UsageError("not a number of seconds", expected=f"{name}=60", found="another value")


def _settle(options: dict[str, Any]) -> None:
    """Make the folder of a cache an absolute path, and sizes numbers of bytes."""
    if "cache_dir" in options:
        folder = options["cache_dir"]
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder) or "://" in os.fspath(folder):
            raise UsageError("cache_dir is a folder of this machine", found=repr(folder)[:80])
        options["cache_dir"] = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    for name in ("cache_limit", "gap_bytes"):
        if name in options:
            options[name] = parse_bytes(options[name])
    if options.get("gap_bytes", _LEAST_GAP) < _LEAST_GAP:
        raise UsageError("gap_bytes is too small", expected="at least 8KB", found=str(options["gap_bytes"]))


def _arguments(scheme: str) -> Iterator[str]:
    """Give the names of the arguments of the file system of a scheme, its base classes included."""
    from fsspec import get_filesystem_class

    for kind in get_filesystem_class(scheme).__mro__[:-1]:
        if "__init__" in vars(kind):
            for name, one in inspect.signature(kind.__init__).parameters.items():
                if name != "self" and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                    yield name
