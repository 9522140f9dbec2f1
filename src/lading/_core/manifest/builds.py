"""The hidden folders beside a destination in which jobs build it: their names, and those of the files of a journal."""

from __future__ import annotations

import os
import re

from lading._core.storage.base import Copies, Store, final_place, store_errors, temporary_name
from lading._core.storage.staging import built_folders
from lading._core.storage.stores import is_local

__all__ = [
    "COMMIT_NAME",
    "JOB_NAME",
    "PLAN_NAME",
    "RECORDS",
    "builds_of",
    "done_place",
    "rank_build",
    "rank_builds_of",
]

PLAN_NAME, RECORDS, COMMIT_NAME = "plan.json", "records", "commit.json"
"""Of a journal: its plan, the folder of records, and what tells that the commit has begun."""
JOB_NAME = "job.json"
"""In `_lading` of a destination: the SHA-256 of the plan of the job that wrote it. No manifest lists this file."""
_TOKEN_DIGITS, _JOB = 16, "job-"
"""A folder of ranks has the hash of their plan in its name, with this before: sweeps look for tokens alone."""


def builds_of(store: Store, destination: str) -> list[str]:
    """Return the hidden folders in which a destination is built, or was built by jobs that died."""
    if is_local(store):
        return built_folders(destination)
    if not isinstance(store, Copies):
        return []
    parent, _, name = destination.rpartition("/")
    token = re.compile(re.escape(f"{name}.lading-") + "[0-9a-f]{16}")
    return [folder for folder in store.folders(parent) if token.fullmatch(folder.rpartition("/")[2])]


def done_place(store: Store, root: str) -> str:
    """Return the path of what tells that a job's commit has ended: the last file of it that is removed."""
    return f"{root}.lock" if is_local(store) else f"{root}/done.json"


def rank_build(store: Store, destination: str, job: str) -> str:
    """Return the folder in which all ranks of a job build a destination; `job` is the hash of its plan."""
    if is_local(store):
        return f"{temporary_name(os.path.abspath(final_place(destination)))[:-_TOKEN_DIGITS]}{_JOB}{job}"
    return f"{destination}.lading-{_JOB}{job}"


def rank_builds_of(store: Store, destination: str) -> list[str]:
    """Return the folders in which ranks build a destination, or have built it."""
    if is_local(store):
        place = os.path.abspath(final_place(destination))
        folder, stem = os.path.dirname(place), os.path.basename(temporary_name(place))[:-_TOKEN_DIGITS] + _JOB
        with store_errors(destination):
            names = os.listdir(folder) if os.path.isdir(folder) else []
        found = {name.removesuffix(".lock") for name in names if name.startswith(stem)}
        return sorted(f"{folder}/{name}" for name in found if _is_hash(name.removeprefix(stem)))
    if not isinstance(store, Copies):
        return []
    parent, _, name = destination.rpartition("/")
    stem = f"{parent}/{name}.lading-{_JOB}"
    return [folder for folder in store.folders(parent) if _is_hash(folder.removeprefix(stem))]


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", text) is not None
