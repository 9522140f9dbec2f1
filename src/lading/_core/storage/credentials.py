"""Where the credentials of a bucket come from, beyond what obstore finds by itself.

obstore reads the environment, and asks the machine it runs on (roles of EC2, containers, web identities). Profiles of
the AWS command line are read here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from configparser import ConfigParser
from typing import Any, Final
from urllib.parse import urlsplit

from lading.errors import StoreError, UsageError, missing_extra

__all__ = ["profile_options", "refuse_no_credentials"]

_OWN: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
               "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
"""Variables that come before a profile."""
_KEYS: Final = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
                "aws_session_token": "session_token"}  # fmt: skip
_SETTINGS: Final = {"region": "region", "endpoint_url": "endpoint"}
_METADATA: Final = "http://169.254.169.254"
"""Where a machine of a cloud asks for the credentials of its role."""
_METADATA_VARIABLES: Final = {"s3": ("AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                              "gcs": ("GCE_METADATA_HOST",), "azure": ()}  # fmt: skip
_WAIT_S: Final = 2.0
"""How long that may take to answer. It is next to the machine."""
_SOURCES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]]] = {
    "s3": (
        ("access_key_id", "credential_provider", "web_identity", "container_", "skip_signature"),
        (*_OWN, "AWS_SKIP_SIGNATURE"),
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
    ),
    "gcs": (
        ("service_account", "application_credentials", "bearer_token", "credential_provider", "skip_signature"),
        ("GOOGLE_",),
        "Set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login.",
    ),
    "azure": (
        ("account_key", "sas_", "access_key", "client_", "token", "credential_", "use_", "msi_", "federated",
         "skip_signature"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS", "AZURE_STORAGE_KEY",
         "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_USE", "AZURE_STORAGE_CLIENT", "AZURE_CLIENT", "AZURE_FEDERATED",
         "AZURE_USE", "AZURE_SKIP", "AZURE_STORAGE_SKIP", "AZURE_MSI", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"),
        "Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY.",
    ),
}  # fmt: skip
"""Of each kind of store: beginnings of options and of variables that say where credentials are, and advice."""
_GCLOUD: Final = "~/.config/gcloud/application_default_credentials.json"


def profile_options(profile: str | None = None) -> dict[str, Any]:
    """Options of an S3 store from a profile of the AWS command line: that of `AWS_PROFILE`, else `default`.

    Empty if no profile is named and the environment has credentials, or if there is no profile. Profiles with keys are
    read here. Others, with roles or single sign-on, take boto3, which also renews what expires.

    Source: https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html

    Raises:
        MissingExtra: the profile needs boto3.
        UsageError: there is no profile of that name.
    """
    named = profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    if named is None and any(os.environ.get(name) for name in _OWN):
        return {}
    name = named or "default"
    keys = _section(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials", name)
    settings = _section(
        os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config", name if name == "default" else f"profile {name}"
    )
    if named is not None and not keys and not settings:
        raise UsageError("no such profile", expected="a profile of ~/.aws/credentials or ~/.aws/config",
                         found=f"profile={profile}" if profile else f"AWS_PROFILE={named}")  # fmt: skip
    found = {**settings, **keys}
    options: dict[str, Any] = {ours: found[theirs] for theirs, ours in _SETTINGS.items() if theirs in found}
    if "aws_access_key_id" in found:
        return {**options, **{ours: found[theirs] for theirs, ours in _KEYS.items() if theirs in found}}
    if any(each.startswith(("sso_", "role_", "credential_", "source_")) for each in found):
        return {**options, "credential_provider": _by_boto3(name)}
    return options


def refuse_no_credentials(kind: str, place: str, settings: Mapping[str, Any]) -> None:
    """Raise StoreError if nothing says where the credentials of a store are, and the machine has no role.

    obstore would ask the machine for minutes.

    Args:
        kind: `s3`, `gcs` or `azure`.
        place: URL of the bucket.
        settings: options of obstore.
    """
    options, variables, advice = _SOURCES[kind]
    if any(name.removeprefix("aws_").startswith(options) and value for name, value in settings.items()):
        return
    if any(name.startswith(variables) and value for name, value in os.environ.items()):
        return
    if kind == "gcs" and os.path.exists(os.path.expanduser(_GCLOUD)):
        return
    named = next((v for v in map(os.environ.get, _METADATA_VARIABLES[kind]) if v), _METADATA)
    given = str(settings.get("metadata_endpoint") or named)
    url = urlsplit(given if "://" in given else f"http://{given}")
    try:
        if kind != "s3" or os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            socket.create_connection((url.hostname or "", url.port or 80), _WAIT_S).close()
            return
    except OSError:
        pass
    raise StoreError("no credentials", file=place,
                     advice=f"{advice} Of a public bucket, add --storage-option anonymous=true.")  # fmt: skip


def _section(path: str, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.read(os.path.expanduser(path), encoding="utf-8")
    return dict(parser[name]) if parser.has_section(name) else {}


def _by_boto3(profile: str) -> Any:
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        need = f"the AWS profile {profile!r} needs boto3"
        raise missing_extra(error, need, "boto3", "Run: pip install boto3.") from error
    return Boto3CredentialProvider(Session(profile_name=profile))
