"""Where the credentials of a bucket come from, beyond what obstore finds by itself.

obstore reads the environment, and asks the machine it runs on (roles of EC2, containers, web identities). Profiles of
the AWS command line are read here.
"""

from __future__ import annotations

import os
from configparser import ConfigParser
from typing import Any, Final

from lading.errors import MissingExtra, UsageError

__all__ = ["profile_options"]

_OWN: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
               "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
"""Variables that come before a profile."""
_KEYS: Final = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
                "aws_session_token": "session_token"}  # fmt: skip
_SETTINGS: Final = {"region": "region", "endpoint_url": "endpoint"}


def profile_options() -> dict[str, Any]:
    """Options of an S3 store from the profile of the AWS command line that `AWS_PROFILE` names, else from `default`.

    Empty if the environment has credentials, or if there is no profile. Profiles with keys are read here. Others, with
    roles or single sign-on, take boto3, which also renews what expires.

    Source: https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html

    Raises:
        MissingExtra: the profile needs boto3.
        UsageError: there is no profile of that name.
    """
    named = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    if named is None and any(os.environ.get(name) for name in _OWN):
        return {}
    name = named or "default"
    keys = _section(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials", name)
    settings = _section(
        os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config", name if name == "default" else f"profile {name}"
    )
    if named is not None and not keys and not settings:
        raise UsageError("no such profile", expected="a profile of ~/.aws/credentials or ~/.aws/config",
                         found=f"AWS_PROFILE={named}")  # fmt: skip
    found = {**settings, **keys}
    options: dict[str, Any] = {ours: found[theirs] for theirs, ours in _SETTINGS.items() if theirs in found}
    if "aws_access_key_id" in found:
        return {**options, **{ours: found[theirs] for theirs, ours in _KEYS.items() if theirs in found}}
    if any(each.startswith(("sso_", "role_", "credential_", "source_")) for each in found):
        return {**options, "credential_provider": _by_boto3(name)}
    return options


def _section(path: str, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.read(os.path.expanduser(path), encoding="utf-8")
    return dict(parser[name]) if parser.has_section(name) else {}


def _by_boto3(profile: str) -> Any:
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise MissingExtra(f"the AWS profile {profile!r} needs a package that is not installed", found=str(error),
                           advice="Run: pip install boto3.") from error  # fmt: skip
    return Boto3CredentialProvider(Session(profile_name=profile))
