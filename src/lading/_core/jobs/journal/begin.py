"""Jobs that begin: anew, where the same job died, or not at all, because it has ended.

A destination keeps the SHA-256 of the plan of the job that wrote it, in `_lading/job.json`. By that, the same job is
known when it is asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from lading._core.jobs.convert.refusals import refuse_ledger, refuse_taken
from lading._core.jobs.convert.summary import ConvertSummary, together
from lading._core.jobs.journal.journal import resume_build
from lading._core.jobs.journal.journal_plan import JournalPlan
from lading._core.jobs.journal.records import read_json
from lading._core.manifest.builds import JOB_NAME
from lading._core.manifest.commit import Staging
from lading._core.manifest.files import load_manifest
from lading._core.manifest.unfinished import is_unfinished
from lading._core.manifest.values import FOLDER
from lading._core.storage.base import Store
from lading._core.storage.stores import Stores
from lading.options import WriteOptions

__all__ = ["begin_build", "done_before"]


def begin_build(
    place: tuple[Store, str],
    plan: JournalPlan,
    write: WriteOptions,
    stores: Stores,
    *,
    keeps: bool,
    splits: Sequence[str] = (),
) -> tuple[Staging | None, ConvertSummary | None]:
    """Return the place to build in: that of an unfinished job of the same plan (`resume`), or a new one.

    If the same job has ended, what it did is returned too, and the place only if there is something to remove.

    Args:
        place: store and path of the destination.
        plan: of the job.
        write: how it is written.
        stores: of the ledger.
        keeps: whether the caller writes the plan into the place at once.
        splits: names of the datasets, if the job writes several.

    Raises:
        UsageError: the unfinished job is another one, or is under way.
        DestinationExists: the dataset there is of another job.
    """
    store, path = place
    if write.resume:
        found = resume_build(store, path, plan)
        if found is not None:
            return found
        done = done_before(store, path, plan.sha256, splits)
        if done is not None:
            plan.refuse_unknown(path)
            return None, done
        refuse_taken(place, write, again=False)
        refuse_ledger(write, stores)
    return Staging.begin(store, path, shared=False, plans=keeps), None


def done_before(
    store: Store, destination: str, sha256: str | None, splits: Sequence[str] = ()
) -> ConvertSummary | None:
    """Return what the job did that wrote a destination, as its manifest tells; None unless the job has ended.

    Args:
        store: of the destination.
        destination: its path.
        sha256: of the plan of the job; None for any job.
        splits: names of the datasets, if the job writes several.
    """
    began = time.perf_counter()
    job = read_json(store, f"{destination}/{FOLDER}/{JOB_NAME}")
    if job is None or sha256 not in (None, job.get("sha256")) or is_unfinished(store, destination):
        return None
    each = {}
    for name in splits or [""]:
        found = load_manifest(store, f"{destination}/{name}".rstrip("/"))
        if found is None:
            return None
        manifest, _ = found
        each[name] = ConvertSummary(
            "", manifest.format, manifest.view, 0, manifest.num_shards, manifest.num_samples, 0, manifest.size_bytes,
            manifest.payload_bytes, 0.0, counts=manifest.counts, done_before=True,
        )  # fmt: skip
    return together(each, began) if splits else replace(each[""], seconds=time.perf_counter() - began)
