"""Errors of obstore as lading's own: one line that says what is wrong, and what to type."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from lading._core.secret_urls import cleaned
from lading._core.storage.retries import TRANSIENT_STATUS
from lading.errors import DestinationExists, LadingError, StoreError, UsageError

__all__ = [
    "OF_ONE_PLACE",
    "QUICK_RETRIES",
    "holds_secret",
    "is_outside",
    "is_refused",
    "is_whole",
    "may_pass",
    "own_error",
]

_STATUS: Final = re.compile(r"status code: (\d{3} [A-Za-z ]*)")
_REGION: Final = re.compile(r"(?:expecting '|<Region>)([\w-]+)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_ASKED: Final = re.compile(r"Error performing \w+ (\S+) in [\d.]+")
_REDIRECTS: Final = ("301", "307", "308")
_CHECKSUMS: Final = ("sha256mismatch", "checksum", "baddigest")
_SILENT: Final = ("error sending request", "connection refused", "timed out", "dns error")
QUICK_RETRIES: Final = 2
"""Of obstore, for requests that lading repeats itself."""
_REPEATED: Final = re.compile(r" in ([\d.]+m?s), after (\d+) retries, max_retries: (\d+)")
_WHOLE: Final = ("non-partial response", "Range request not supported")
_OUTSIDE: Final = ("416 Range Not Satisfiable", "Wanted range starting at")
"""What S3 says of a range behind the end of a file, and what obstore makes of the answer of Azure."""
_NO_ACCESS: Final = "the store refuses access"
_NO_BUCKET: Final = "no such bucket"
_OTHER_REGION: Final = "the bucket is in another region"
OF_ONE_PLACE: Final = frozenset((_NO_ACCESS, _NO_BUCKET, _OTHER_REGION))
"""Problems with the object or the bucket that is asked for: another one may be read."""
_ANONYMOUS: Final = "Of a public bucket, add --storage-option anonymous=true."


def own_error(error: Exception, path: str) -> LadingError:
    """Return an error of obstore's as lading's own, without secrets of URLs."""
    kind, text = type(error).__name__, cleaned(str(error))
    if kind == "AlreadyExistsError":
        return DestinationExists("something is there already", file=path)
    if kind == "PreconditionError":
        return StoreError("the file has changed", file=path, found=_said(text))
    if isinstance(error, ValueError):
        return UsageError("not a name of an object", file=path, found=text.splitlines()[0])
    refused = kind in ("PermissionDeniedError", "UnauthenticatedError")
    return _of_settings(text, path, refused=refused) or _of_server(text, path)


def holds_secret(error: Exception) -> bool:
    """Return whether the text of an error has a URL with a query, or with a user and a password."""
    return cleaned(str(error)) != str(error)


def is_outside(text: str) -> bool:
    """Return whether an error says that a range begins behind the end of its file."""
    return any(said in text for said in _OUTSIDE)


def is_whole(text: str) -> bool:
    """Return whether an error says that a server gave a whole file instead of a range."""
    return any(words in text for words in _WHOLE)


def is_refused(error: Exception) -> bool:
    """Return whether there was no connection: nobody takes it, or the name of the server is unknown."""
    return "kind: Connect" in str(error)


def may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed."""
    text = str(error)
    if type(error).__name__ != "GenericError" or is_outside(text) or is_whole(text):
        return False
    status = _STATUS.search(text)
    return status is None or int(status[1][:3]) in TRANSIENT_STATUS


def _of_settings(text: str, path: str, *, refused: bool) -> StoreError | None:
    """An error that other options mend."""
    said, lower = _said(text), text.lower()
    region = _REGION.search(text)
    if region or said.startswith(_REDIRECTS) or "without location" in lower:
        name = region[1] if region else "NAME"
        return StoreError(_OTHER_REGION, file=path, expected=region and name,
                          advice=f"Set AWS_REGION={name}, or add --storage-option region={name}.")  # fmt: skip
    if any(word in lower for word in _CHECKSUMS):
        return StoreError("the server refuses the checksum of an upload", file=path, found=said,
                          advice="Add --storage-option unsigned_payload=true.")  # fmt: skip
    if refused or said.startswith(("401", "403")):
        web = path.startswith(("http://", "https://"))
        advice = "Check the URL." if web else f"Check the credentials, and what they allow. {_ANONYMOUS}"
        return StoreError(_NO_ACCESS, file=path, found=said, advice=advice)
    if said.startswith("404"):
        return StoreError(_NO_BUCKET, file=path, found=said, advice="Create it, or check its name.")
    if said.startswith("400") and path.startswith(("s3://", "s3a://")):
        return StoreError(said, file=path, advice="Check the region and the keys. For another region, set AWS_REGION, "
                          "or add --storage-option region=NAME.")  # fmt: skip
    return None


def _of_server(text: str, path: str) -> StoreError:
    """An error of a server or of the network."""
    if is_whole(text):
        return StoreError("the server returns whole files instead of ranges", file=path,
                          advice="Download the file first.")  # fmt: skip
    asked, advice = _ASKED.search(text), "Check the network, and that the URL is right."
    repeated = _REPEATED.search(text)
    after = f" ({repeated[2]} retries in {repeated[1]})" if repeated and int(repeated[3]) > QUICK_RETRIES else ""
    if asked is None or _STATUS.search(text):
        return StoreError(_said(text) + after, file=path, advice=advice)
    url = urlsplit(asked[1])
    server = f"{url.scheme}://{url.netloc}"
    if any(word in text.lower() for word in _SILENT):
        return StoreError(f"{server} does not answer{after}", file=path,
                          advice="Check the network, and the endpoint: AWS_ENDPOINT_URL, or --storage-option "
                          "endpoint=URL.")  # fmt: skip
    return StoreError(f"{server} failed", file=path, found=_said(text), advice=advice)


def _said(text: str) -> str:
    """What an error says: the status of the answer with its code, else the first line."""
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return f"{status[1].strip()}, {code[1]}" if code else status[1].strip()
    return text.splitlines()[0].strip() if text else ""
