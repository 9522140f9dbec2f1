"""Push: a dataset as a repository of Hugging Face's Hub."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lading._core.arguments import public
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import HoldsQuery, Query, Queryable, refuse_opening
from lading._core.dataset.source.hub_configs import CARD
from lading._core.dataset.source.open import Named
from lading._core.dataset.steps.column_steps import Drop
from lading._core.features.huggingface import huggingface_features
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.convert import convert
from lading._core.jobs.convert.splits import places_of_splits
from lading._core.jobs.engine.progress import OnProgress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.push.card import PushedSplit, card_text, draft_text, splits_of_card
from lading._core.jobs.push.uploads import Uploads
from lading._core.manifest.files import load_manifest
from lading._core.manifest.hugging_face import refuse_unread
from lading._core.result_text import ResultText
from lading._core.storage.hub import REPOSITORY, HubStore
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.temporary import temporary_files_in, temporary_folder
from lading._core.storage.threads import Threads
from lading._core.units import count
from lading.errors import DestinationExists, NotFound, SeveralSplits, UsageError
from lading.options import OnError

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

__all__ = ["PushSummary", "push"]

_SHARD: Final = re.compile(r"(\w+(?:\.\w+)*)-\d{5,}(?:-of-\d{5,})?\.[^/]+")
"""A file of a split."""
_LINEAGE: Final = "source_ref"
_WITHOUT: Final = f"rows are pushed without {_LINEAGE}, which names files of this machine"
_A_COMMIT: Final = 500
"""Files of a commit, at most."""


@dataclass(frozen=True, slots=True)
class PushSummary(ResultText):
    """What was pushed.

    Attributes:
        page: the page of the dataset.
        destination: the dataset as `lading.open` takes it, in the commit that was made.
        format: format of the files.
        commits: number of commits.
        samples: number of samples.
        files: number of files, without the card.
        size_bytes: bytes of these files.
        replaced: number of files that were there and are no longer.
        seconds: wall-clock time.
        splits: number of samples of each split.
        counts: number of rows that were dropped, renamed …, by a short phrase.
    """

    page: str
    destination: str
    format: str
    commits: int
    samples: int
    files: int
    size_bytes: int
    replaced: int
    seconds: float
    splits: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Target:
    """A config of a repository.

    Attributes:
        hub: its store.
        url: as it was given.
        repo: name of the repository.
        revision: branch; None for the default.
        config: name of the config.
    """

    hub: HubStore
    url: str
    repo: str
    revision: str | None
    config: str

    @property
    def folder(self) -> str:
        """The folder of the config's files."""
        return "data" if self.config == "default" else self.config


@public("lading.push")
def push(  # noqa: PLR0913 - one argument a decision of the user; all but three by keyword
    source: Queryable | Mapping[str, HoldsQuery],
    destination: str,
    format: str = "parquet",  # noqa: A002 - the word users know
    *,
    split: str | None = None,
    private: bool = False,
    license: str | None = None,  # noqa: A002 - the word users know
    message: str | None = None,
    overwrite: bool = False,
    shard_size: int | str = "500MB",
    options: Mapping[str, Any] | None = None,
    on_error: OnError = "error",
    max_batch_bytes: int | str = "512MB",
    temp_dir: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
) -> PushSummary:
    """Write a source, or a dataset with its steps, into a dataset's repository on Hugging Face's Hub.

    Example:
        lading.push("photos/*.tar", "hf://datasets/me/photos", private=True, license="mit")

    A shard is uploaded while the next one is written, and then leaves the disk: that holds three shards. The files get
    their names in one commit at the end (more for over 500 files), with the card `README.md`. If a push is killed,
    nothing shows in the repository. The same push again uploads only what the Hub does not have.

    Files are `data/train-00000-of-00012.parquet`, as `push_to_hub` of `datasets` names them. The split is the one that
    is chosen, else `train`. Each split of a source with several splits is pushed. The text of a card that is there
    stays, and so do other configs and splits. Documents leave out `source_ref`, which names files of this machine.

    Args:
        source: as for `lading.open`, or a dataset; or datasets by the name of their split. For other options of reading
            push a dataset: `lading.open(…).push(…)`.
        destination: `hf://datasets/ORG/NAME`, with `@BRANCH` for another branch than `main`. A folder behind it is the
            config: `hf://datasets/ORG/NAME/CONFIG`. What is missing is made.
        format: format to write: one that `datasets` reads, such as `parquet` or `webdataset`.
        split: split of the source, as for `lading.open`.
        private: make a new repository private. One that is there stays as it is.
        license: identifier of the licence for the card, such as `cc-by-4.0`.
        message: title of the commit.
        overwrite: replace the files of these splits, in the same commit.
        shard_size: size of a shard, in bytes or as text.
        options: options of the format written.
        on_error: for a row with unavailable payload, as for `lading.convert`.
        max_batch_bytes: payload held in memory at once.
        temp_dir: local folder for the shards; by default `TMPDIR`.
        storage_options: `token` and `endpoint` of the Hub, and options of the source's stores. By default the token is
            that of `HF_TOKEN`, or of `hf auth login`.
        on_progress: called after every batch.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.

    Raises:
        DestinationExists: the repository has files of these splits.
        UsageError: the destination is no repository, or `datasets` does not read the format.
        StoreError: the Hub refuses, for want of a token or of rights, or does not answer.
    """
    began, fmt = time.perf_counter(), get_format(format)
    target = _target(destination, Stores.of(None, storage_options))
    refuse_unread(fmt.name)
    with (
        shown_progress("pushing", on_progress, progress=progress) as report,
        temporary_files_in(temp_dir),
        temporary_folder() as folder,
        _quiet_client(),
        ExitStack() as held,
    ):
        given = _splits_of(source, target.url, split, storage_options)
        parts = {name: _without_places(query) for name, query in given.items()}
        columns = _check_splits(parts)
        commit = _ready(target, private=private)
        there = _there(target, commit, list(parts), fmt, overwrite=overwrite)
        stale, card = there.stale, there.card
        _check_others(target, there, columns, storage_options)
        _check_card(target, draft_text(card, license))
        uploads = Uploads(target.hub, target.url, target.repo, target.revision, fmt.name,
                          held.enter_context(Threads(1, "lading-upload")))  # fmt: skip
        alone = {**fmt.info.presets.write_alone, **(options or {})}
        pushed: dict[str, PushedSplit] = {}
        added: list[CommitOperationAdd] = []
        counts: dict[str, int] = {}
        for name, query in parts.items():
            place = f"{folder}/{name}"
            done = convert(
                query.reading(stores=query.stores.and_for({folder: uploads})), place, fmt.name, options=alone,
                shard_size=shard_size, on_error=on_error, max_batch_bytes=max_batch_bytes, on_progress=report,
                temp_dir=temp_dir, checksums="none",
            )  # fmt: skip
            names = _names(uploads, place, target, name, fmt)
            added += [uploads.added(path, file) for path, file in names]
            pushed[name] = PushedSplit(
                [file for _, file in names], done.samples, done.rows, done.size_bytes, done.payload_bytes,
                OpenDataset.of(query).schema, {} if uploads.schema is None else huggingface_features(uploads.schema),
            )  # fmt: skip
            counts = {**counts, **{what: counts.get(what, 0) + number for what, number in done.counts.items()}}
            if query is not given[name] and done.rows:
                counts[_WITHOUT] = counts.get(_WITHOUT, 0) + done.rows
        text = card_text(card, target.repo, target.config, target.folder, pushed, fmt.name, license)
        kept = {name for one in pushed.values() for name in one.files}
        stale = [name for name in stale if name not in kept]
        commit, commits = _commit(target, commit, added, stale, text, message)
    place = "" if target.config == "default" else f"/{target.config}"
    return PushSummary(
        page=f"{target.hub.api.endpoint}/datasets/{target.repo}",
        destination=f"hf://datasets/{target.repo}@{commit}{place}",
        format=fmt.name, commits=commits, samples=sum(one.samples for one in pushed.values()), files=len(added),
        size_bytes=sum(one.size_bytes for one in pushed.values()), replaced=len(stale),
        seconds=time.perf_counter() - began, splits={name: one.samples for name, one in pushed.items()}, counts=counts,
    )  # fmt: skip


def _target(destination: str, stores: Stores | None) -> _Target:
    """Return the config that a destination names. Raises UsageError."""
    url = os.fspath(destination).rstrip("/")
    found = REPOSITORY.fullmatch(url)
    store, _ = resolve(url, stores)
    if found is None or "/" in (found["path"] or "") or not isinstance(store, HubStore):
        name = re.fullmatch(r"(?:https://(?:huggingface\.co|hf\.co)/datasets/|hf://)?([\w.-]+/[\w.-]+)", url)
        raise UsageError("the destination is no dataset's repository on the Hub", found=url,
                         expected="hf://datasets/ORG/NAME, or hf://datasets/ORG/NAME/CONFIG",
                         advice=name and f"Write hf://datasets/{name[1]}.")  # fmt: skip
    return _Target(store, url, found["repo"], found["revision"], found["path"] or "default")


def _splits_of(source: Any, url: str, split: str | None, storage_options: Mapping[str, Any] | None) -> dict[str, Query]:
    """Return the query of each split. Raises UsageError for arguments of opening where a dataset is given."""
    if isinstance(source, Mapping):
        refuse_opening({"split": split})
        return {name: Query.held_by(part) or Query.of(part, storage_options=storage_options)
                for name, part in source.items()}  # fmt: skip
    held = Query.held_by(source)
    if held is not None:
        refuse_opening({"split": split})
    query = held or Query.of(source, split=split, storage_options=storage_options)
    try:
        OpenDataset.of(query)
    except SeveralSplits as error:
        places = places_of_splits(query.source.names, error, url, query.stores)
        return {name: query.replace(source=Named.of(place)).reading(split=one) for name, (place, one) in places.items()}
    return {query.read.split or "train": query}


def _ready(target: _Target, *, private: bool) -> str:
    """Make the repository and the branch, if they are missing, and return the commit that is there."""
    api, hub = target.hub.api, target.hub
    hub.ask(partial(api.create_repo, target.repo, repo_type="dataset", private=private or None, exist_ok=True),
            target.url)  # fmt: skip
    if target.revision is not None and not target.revision.startswith("refs/"):
        branch = partial(api.create_branch, target.repo, branch=target.revision, repo_type="dataset", exist_ok=True)
        hub.ask(branch, target.url)
    found = REPOSITORY.fullmatch(hub.pinned(target.url))
    assert found is not None, "it was pinned"
    return str(found["revision"])


def _without_places(query: Query) -> Query:
    """Return documents without `source_ref`, which names files of this machine: lineage, and no content."""
    opened = OpenDataset.of(query)
    if not opened.shards.has_items or _LINEAGE not in opened.schema.names:
        return query
    return query.replace(steps=(*query.steps, Drop((_LINEAGE,))))


def _check_splits(parts: Mapping[str, Query]) -> list[str]:
    """Return the columns. Raises UsageError for splits that `datasets` would not load."""
    if not parts:
        raise UsageError("there is no split to push", expected="datasets by the name of their split, such as train")
    for name in parts:
        if re.fullmatch(r"\w+(\.\w+)*", str(name)) is None:
            raise UsageError("datasets does not take this name of a split", expected="letters, digits, _ and .",
                             found=str(name), advice="Push the split by another name: lading.push({'NAME': …}, …); "
                             "or choose one with --split, and push it as a config.")  # fmt: skip
    columns = {name: list(OpenDataset.of(query).schema.names) for name, query in parts.items()}
    first, *others = columns
    for name in others:
        _check_columns(columns[first], columns[name], f"{first} and {name}")
    return columns[first]


def _check_columns(expected: Sequence[str], found: Sequence[str], what: str) -> None:
    if {*expected} != {*found}:
        raise UsageError(f"the splits {what} differ in columns: datasets loads no such config",
                         expected=", ".join(sorted({*expected} - {*found})) or "none more",
                         found=", ".join(sorted({*found} - {*expected})) or "none more",
                         advice="Select the same columns, or push another config: "
                         "hf://datasets/ORG/NAME/CONFIG.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _There:
    """What is in a repository.

    Attributes:
        root: URL of the repository, in its commit.
        stale: paths of the files of the splits that are pushed.
        others: paths of the files in Parquet of other splits of the config, as lading and `datasets` name them.
        card: the data card; empty if there is none.
    """

    root: str
    stale: Sequence[str]
    others: Sequence[str]
    card: bytes


def _there(target: _Target, commit: str, splits: Sequence[str], fmt: AnyFormat, *, overwrite: bool) -> _There:
    """Return what is there of a config.

    Raises:
        DestinationExists: the same splits.
        UsageError: splits of another format, or files that would be read with these.
    """
    root = f"hf://datasets/{target.repo}@{commit}"
    names = [info.path[len(root) + 1 :] for info in target.hub.walk(f"{root}/{target.folder}")]
    shards = {name: found[1] for name in names if (found := _SHARD.match(name.removeprefix(f"{target.folder}/")))}
    stale = [name for name, split in shards.items() if split in splits]
    leads = tuple(f"{target.folder}/{split}-" for split in splits)
    odd = [name for name in names if name.startswith(leads) and name not in stale]
    if odd:
        raise UsageError("files of other names would be read as a part of this split", file=target.url,
                         expected=f"{leads[0]}00000-of-00001{fmt.info.extensions[0]}", found=odd[0],
                         advice="Move them on the Hub, or push a config: "
                         f"hf://datasets/{target.repo}/CONFIG.")  # fmt: skip
    card = b""
    with suppress(NotFound):
        info = target.hub.head(f"{root}/{CARD}")
        [data] = target.hub.get_ranges(info.path, [(0, info.size_bytes)], info.version)
        card = bytes(data)
    listed = splits_of_card(card, target.config)
    same = stale or [pattern for split in splits for pattern in listed.get(split, ())]
    if same and not overwrite:
        raise DestinationExists("the repository has files of this split", file=target.url,
                                found=f"{count(len(same), 'file' if stale else 'pattern')}: {same[0]} …",
                                advice="Replace them with --overwrite, or push another split or config.")  # fmt: skip
    for split, patterns in listed.items():
        for pattern in patterns if split not in splits else ():
            if not pattern.lower().endswith(fmt.info.extensions):
                raise UsageError("the config has splits of another format: datasets loads no such config",
                                 file=target.url, expected=f"{split}: {pattern}", found=fmt.name,
                                 advice="Push the same format, or another config: "
                                 f"hf://datasets/{target.repo}/CONFIG.")  # fmt: skip
    return _There(
        root, stale, [name for name, split in shards.items() if split in listed and split not in splits], card
    )


def _check_others(
    target: _Target, there: _There, columns: Sequence[str], storage_options: Mapping[str, Any] | None
) -> None:
    """Raise UsageError if the other splits of a config in Parquet have other columns."""
    if there.others:
        first = Query.of(f"{there.root}/{there.others[0]}", storage_options=storage_options)
        _check_columns(OpenDataset.of(first).schema.names, columns, f"of {target.url} and of this push")


def _check_card(target: _Target, draft: str) -> None:
    """Let the Hub check the YAML of the card before anything is uploaded. Raises UsageError."""
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined] # public names

    headers = build_hf_headers(token=target.hub.api.token)
    asked = partial(get_session().post, f"{target.hub.api.endpoint}/api/validate-yaml", headers=headers,
                    json={"content": draft, "repoType": "dataset"})  # fmt: skip
    answer, wrong = target.hub.ask(asked, target.url), ""
    with suppress(ValueError):  # what is no JSON says nothing of the card
        wrong = "; ".join(str(each["message"]) for each in answer.json().get("errors", ()))
    if wrong:
        raise UsageError("the Hub refuses the YAML of the card", file=target.url, found=wrong[:300],
                         advice="Give a licence by an identifier of the Hub, such as mit, cc-by-4.0 or other; "
                         "correct other values in README.md on the Hub.")  # fmt: skip


def _names(uploads: Uploads, place: str, target: _Target, split: str, fmt: AnyFormat) -> list[tuple[str, str]]:
    """Return the path of each shard on the disk, in order, and its name in the repository."""
    kept = load_manifest(uploads, place)
    assert kept is not None, "it was written"
    paths = kept[1]["path"].to_pylist()
    endings = sorted(fmt.info.extensions, key=len, reverse=True)
    named = []
    for number, path in enumerate(paths):
        ending = next(each for each in endings if path.lower().endswith(each))
        named.append((f"{place}/{path}", f"{target.folder}/{split}-{number:05}-of-{len(paths):05}{ending}"))
    return named


def _commit(
    target: _Target, parent: str, added: Sequence[CommitOperationAdd], stale: Sequence[str], card: str,
    message: str | None,
) -> tuple[str, int]:  # fmt: skip
    """Give the uploaded files their names; the last commit has the card. Return it, and the number of commits."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    last = [CommitOperationAdd(CARD, card.encode("utf-8", "surrogateescape"))]
    parts = [added[at : at + _A_COMMIT] for at in range(0, len(added), _A_COMMIT)] or [[]]
    gone = [CommitOperationDelete(name) for name in stale]
    title = message or "Upload the dataset with lading"
    for number, part in enumerate(parts):
        ends = number == len(parts) - 1
        call = partial(
            target.hub.api.create_commit, target.repo, [*part, *(last + gone if ends else [])], repo_type="dataset",
            revision=target.revision, parent_commit=parent,
            commit_message=title if len(parts) == 1 else f"{title} ({number + 1} of {len(parts)})",
        )  # fmt: skip
        parent = str(target.hub.ask(call, target.url, is_first=False).oid)
    return parent, len(parts)


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Show no bars of the Hub's client beside lading's own."""
    from huggingface_hub import utils

    client: Any = utils  # it exports these names in a way of its own
    before = client.are_progress_bars_disabled()
    client.disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            client.enable_progress_bars()
