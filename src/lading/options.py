"""Options as values: how a source is read, which rows are kept, how a dataset is written.

Python's arguments, the command line and the reference pages are made from these dataclasses. The `Attributes:` of a
class are the help texts of its options; `cli` says how the command line spells each.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from functools import lru_cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from lading._core.secret_urls import shown
from lading._core.units import parse_bytes
from lading.errors import UsageError
from lading.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from lading._core.storage.stores import Stores

__all__ = [
    "AUTO",
    "EXECUTORS",
    "NAMES",
    "ROLES",
    "CliOption",
    "Drop",
    "InterleavedOptions",
    "OnBadShard",
    "OnError",
    "OpeningOptions",
    "ReadOptions",
    "RowOptions",
    "SchemaPolicy",
    "SplitOptions",
    "WriteOptions",
    "check_types",
    "cli",
    "help_texts",
    "parse_shard_size",
    "refuse_two_cuts",
    "refuse_two_names",
]

OnError: TypeAlias = Literal["error", "warn", "drop_row", "drop_sample"]
"""For a row whose payload is unavailable: raise; keep it with a null and a warning; drop it; drop its sample."""

OnBadShard: TypeAlias = Literal["error", "skip"]
"""For a shard that cannot be read to its end: raise; or leave all of it out, and list it."""

SchemaPolicy: TypeAlias = Literal["union", "strict", "intersect"]
"""Where shards differ in columns: take all columns, refuse, or take the columns that all shards have."""

Drop: TypeAlias = Literal["row", "sample"]
"""What is dropped with a row that a filter rejects: that row alone, or its whole sample."""

Checksums: TypeAlias = Literal["samples", "files", "none"]
"""What lading keeps checksums of: of samples and files, of files alone, of nothing."""

EXECUTORS = ("processes", "threads", "ray", "dask")
"""Executors that have a name: lading's own worker processes, threads of this process, and a cluster of Ray."""

AUTO = "auto"
"""`sample_id_field`: take the JSON's `sample_id` where the first documents have one, else the JSON member's stem."""

ROLES = {"image": ("image",), "text": ("text",), "item": ("text", "image")}
"""Roles of fields that are lists with one entry per item, and the modalities of these items; the option of a role is
`per_{role}_fields`."""

NAMES = "A,B"
"""Stands for a list of names in help: split at commas, or JSON."""

_READ, _WRITE, _RUN, _SPLITS, _DOCUMENTS = "Reading", "Writing", "Running", "Splits", "Interleaved documents"
_ROWS, _ORDER, _COLUMNS = "Choosing samples", "Order of samples", "Columns"
_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.+)(?:\n {8,}.+)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CliOption:
    """How the command line spells an option.

    Attributes:
        flag: its name, such as `--from`; `--lazy/--materialise` names both values of a truth value.
        metavar: stands for its value in help; empty for a truth value.
        panel: heading above the option in help.
        aliases: further names that the command line accepts and help does not show.
        repeatable: it may be given several times.
        at_least: least value of a number.
        choices: words that it may be.
        switch: value that it has when it is given, where the command line takes none.
        step: method of a dataset that the option calls. Steps apply in the order in which they are typed.
        belongs_to: steps whose argument the option is: an argument of the nearest one that is typed before it.
    """

    flag: str
    metavar: str = ""
    panel: str = _READ
    aliases: tuple[str, ...] = ()
    repeatable: bool = False
    at_least: int | None = None
    choices: tuple[str, ...] = ()
    switch: str | None = None
    step: str = ""
    belongs_to: tuple[str, ...] = ()


def cli(flag: str, metavar: str = "", **more: Any) -> dict[str, CliOption]:
    """Return the metadata of a dataclass field that is an option of the command line too; arguments as `CliOption`.

    Example:
        view: str | None = field(default=None, metadata=cli("--view", "VIEW"))
    """
    return {"cli": CliOption(flag, metavar, **more)}


@lru_cache
def help_texts(kind: type) -> dict[str, str]:
    """Return the text of each option of a dataclass, by name, from the `Attributes:` of its docstring."""
    _, _, rest = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    entries = _ATTRIBUTE.findall(re.split(r"\n(?=\S)", rest)[0])
    return {name: " ".join(text.split()) for name, text in entries}


@dataclass(frozen=True, slots=True)
class InterleavedOptions:
    """How interleaved samples are read. Names and defaults are those of NeMo Curator's readers, where it has them.

    Attributes:
        fields: Passthrough columns to keep. By default all; absent columns are nulls.
        per_image_fields: JSON fields with one entry per image; entry i goes to the i-th image. By default, steps that
            drop or move images look for lists as long as the number of images, and change them too. An empty list: no
            field is such a list.
        per_text_fields: JSON fields with one entry per text.
        per_item_fields: JSON fields with one entry per text or image, in the order of positions.
        sample_id_field: JSON field that names the sample. `auto` uses `sample_id` where the first documents have it,
            else the name of the JSON member without its extension. None (`--option sample_id_field=null`) always uses
            that name.
        image_member_field: JSON field that names the member with a sample's default image.
        texts_field: JSON field with the texts by position.
        images_field: JSON field with the images by position.
        json_extensions: Extensions of JSON members, in any case.
        image_extensions: Extensions tried for a sample's default image, in this order.
        unreferenced: A member that no JSON names is an error, or is dropped and counted (drop).
        regroup: Join the rows of a sample_id wherever they are in the shard, in the order of positions.
    """

    fields: tuple[str, ...] | None = field(
        default=None, metadata=cli("--fields", NAMES, panel=_DOCUMENTS, repeatable=True)
    )
    per_image_fields: tuple[str, ...] | None = field(
        default=None, metadata=cli("--per-image-fields", NAMES, panel=_DOCUMENTS, repeatable=True)
    )
    per_text_fields: tuple[str, ...] = field(
        default=(), metadata=cli("--per-text-fields", NAMES, panel=_DOCUMENTS, repeatable=True)
    )
    per_item_fields: tuple[str, ...] = field(
        default=(), metadata=cli("--per-item-fields", NAMES, panel=_DOCUMENTS, repeatable=True)
    )
    sample_id_field: str | None = field(default=AUTO, metadata=cli("--sample-id-field", "NAME", panel=_DOCUMENTS))
    image_member_field: str | None = None
    texts_field: str = "texts"
    images_field: str = "images"
    json_extensions: tuple[str, ...] = (".json",)
    image_extensions: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif")
    unreferenced: Literal["error", "drop"] = field(
        default="error", metadata=cli("--unreferenced", "POLICY", panel=_DOCUMENTS)
    )
    regroup: bool = False

    @property
    def roles(self) -> dict[str, str]:
        """The role of every field that is a list with one entry per item."""
        return dict(self._listed())

    def _listed(self) -> list[tuple[str, str]]:
        return [(name, role) for role in ROLES for name in getattr(self, f"per_{role}_fields") or ()]

    def __post_init__(self) -> None:
        """Refuse options of other types, and options that contradict each other."""
        from lading._core.features.items import RESERVED

        check_types(type(self), {option.name: getattr(self, option.name) for option in fields(self)})
        taken = {self.texts_field, self.images_field, self.sample_id_field, self.image_member_field, *self.roles}
        for name, role in self._listed():
            if self.roles[name] != role:
                raise UsageError("a field has entries for one kind of items", found=f"{name!r} in two options")
        for name in self.fields or ():
            if name in RESERVED:
                raise UsageError("a reserved column is always there", found=f"fields={name!r}")
            if name in taken:
                raise UsageError("this field is named by another option", found=f"fields={name!r}")
        if self.unreferenced not in ("error", "drop"):
            raise UsageError("no such policy", expected="error or drop", found=f"unreferenced={self.unreferenced!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a source is read.

    Attributes:
        format: Format of the source. It chooses its files in a folder of several formats. By default the name and first
            bytes of the first file decide.
        split: Split to read, such as train: the folder of this name, or the files whose names tell it. By default all
            of the source, which must be one split.
        config: Config (subset) to read of a repository of Hugging Face's hub, as its README.md lists them. By default
            the only one, or the one that is marked as the default.
        view: Take rows as samples, or as interleaved items of documents. By default the data decide.
        options: Option of the source's format or of interleaved documents, as listed by 'lading formats'.
        interleaved: Names of fields and policies for interleaved data. Refused where the data are not interleaved.
        fields: Passthrough columns to keep, as in InterleavedOptions.
        regroup: Join the rows of a sample, or the members of a key in tars, wherever they are in the shard.
        lists: Columns of lists whose items are members of tars, such as image for image.0.jpg, image.1.png and, if it
            is there, image.json. Tars with a manifest of lading's need no such names.
        max_batch_bytes: Payload of a batch, where batches are asked for without a limit.
        on_materialize_error: Where payload is unavailable, and batches are asked for without a policy: error, warn,
            drop_row or drop_sample.
        roots: Folder that references may point into, besides the folders of the source.
        schema: Columns that all rows get: missing columns are nulls, others are left out, values are cast and checked.
        schema_overrides: Arrow type of a column, such as score=float32. All other columns stay as they are.
        hive_partitioning: Take folders such as year=2023 for columns of the rows in them.
        stores: Which store serves which URL. By default the scheme of a URL decides.
        on_bad_shard: Where a shard is damaged, missing or unreadable: error, or skip. skip leaves the whole
            shard out, and lists it.
        mmap: Map local files. False reads them with pread, as jobs do: for files that somebody may truncate meanwhile.
        limits: Limit on what a file may ask for, such as page_bytes=4GB. Errors name the limit.
    """

    format: str | None = field(default=None, metadata=cli("--from", "FORMAT", aliases=("--source-format", "--format")))
    split: str | None = field(default=None, metadata=cli("--split", "NAME"))
    config: str | None = field(default=None, metadata=cli("--config", "NAME"))
    view: str | None = field(default=None, metadata=cli("--view", "VIEW"))
    options: Mapping[str, Any] | None = field(
        default=None, metadata=cli("--option", "NAME=VALUE", aliases=("--source-option",), repeatable=True)
    )
    interleaved: InterleavedOptions | None = None
    fields: Sequence[str] | None = None
    regroup: bool = field(default=False, metadata=cli("--regroup"))
    lists: Sequence[str] = field(default=(), metadata=cli("--lists", NAMES, repeatable=True))
    max_batch_bytes: int | str | None = None
    on_materialize_error: OnError | None = None
    roots: Sequence[str | os.PathLike[str]] = field(
        default=(), metadata=cli("--root", "DIR", aliases=("--roots",), repeatable=True)
    )
    schema: pa.Schema | None = None
    schema_overrides: Mapping[str, pa.DataType] | pa.Schema | None = field(
        default=None, metadata=cli("--type", "NAME=TYPE", aliases=("--schema-overrides",), repeatable=True)
    )
    hive_partitioning: bool = field(default=True, metadata=cli("--hive-partitioning/--no-hive-partitioning"))
    stores: Stores | None = None
    on_bad_shard: OnBadShard = field(
        default="error", metadata=cli("--on-bad-shard", "POLICY", choices=get_args(OnBadShard))
    )
    mmap: bool = True
    limits: Limits = field(
        default=DEFAULT_LIMITS, metadata=cli("--max", "NAME=VALUE", aliases=("--limits",), repeatable=True)
    )

    def __post_init__(self) -> None:
        """Refuse values of other types; roots that are one text would be a folder for each letter."""
        import pyarrow as pa

        from lading._core.features.items import VIEWS

        if self.schema is not None and not isinstance(self.schema, pa.Schema):
            raise UsageError("not a schema of all columns", expected="schema: a pyarrow.Schema",
                             found=repr(self.schema)[:80],
                             advice="Give types of some columns as schema_overrides, features by ds.cast.")  # fmt: skip
        if self.view is not None and self.view not in VIEWS:
            raise UsageError("no such view", expected=" or ".join(VIEWS), found=repr(self.view))
        if self.config is not None and not isinstance(self.config, str):
            raise UsageError("a config is named by a text", found=f"config={self.config!r:.80}")
        if self.on_bad_shard not in get_args(OnBadShard):
            raise UsageError("no such policy", expected=" or ".join(get_args(OnBadShard)),
                             found=f"on_bad_shard={self.on_bad_shard!r}")  # fmt: skip
        if isinstance(self.roots, str):
            raise UsageError("roots are a list of folders", found="a text", advice="Give a list: roots=[…].")
        listed = isinstance(self.roots, Collection)
        if not listed or not all(isinstance(root, (str, os.PathLike)) for root in self.roots):
            raise UsageError("roots are a list of folders", found=repr(self.roots)[:80])
        object.__setattr__(self, "roots", tuple(shown(os.fspath(root)) for root in self.roots))
        for name, kind in (("options", Mapping), ("interleaved", InterleavedOptions), ("limits", Limits)):
            value = getattr(self, name)
            if not isinstance(value, kind) and (value is not None or kind is Limits):
                expected = f"{name}: {'a dict' if kind is Mapping else kind.__name__}"
                raise UsageError("an argument has the wrong type", expected=expected, found=repr(value)[:80])
        _refuse_no_names("fields", self.fields)
        _refuse_no_names("lists", self.lists)
        if not isinstance(self.regroup, bool):
            raise UsageError("neither true nor false", expected="true or false", found=f"regroup={self.regroup!r:.80}")
        _refuse_unknown_policy(self.on_materialize_error or "error", get_args(OnError))


class OpeningOptions(TypedDict, total=False):
    """The arguments of `lading.open`, for type checkers: functions that open a source take them as `**opening`.

    Their meanings and defaults are those of `ReadOptions`. `storage_options`, `cache_dir` and `cache_limit` become a
    part of `stores`.
    """

    format: str | None
    split: str | None
    config: str | None
    view: str | None
    options: Mapping[str, Any] | None
    interleaved: InterleavedOptions | None
    fields: Sequence[str] | None
    regroup: bool
    lists: Sequence[str]
    max_batch_bytes: int | str | None
    on_materialize_error: OnError | None
    roots: Sequence[str | os.PathLike[str]]
    schema: pa.Schema | None
    schema_overrides: Mapping[str, pa.DataType] | pa.Schema | None
    hive_partitioning: bool
    stores: Stores | None
    storage_options: Mapping[str, Any] | None
    cache_dir: str | os.PathLike[str] | None
    cache_limit: int | str | None
    on_bad_shard: OnBadShard
    mmap: bool
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Steps of the command line: which samples are kept, in which order, with which columns.

    Attributes:
        where: Keep rows for which this holds, such as "json.lang == 'en' and jpg.width >= 256".
        filter: Keep samples for which a Python function returns true. The function gets a dict of decoded values.
        min_side: Drop images whose shorter side has fewer pixels.
        max_side: Drop images whose longer side has more pixels.
        min_aspect_ratio: Drop images narrower than this ratio (width / height).
        max_aspect_ratio: Drop images wider than this ratio (width / height).
        drop: Where the --where or the image bounds typed before reject an item of a document, drop the item (row, the
            default) or the whole document (sample).
        dedup: Keep the first of equal samples. Samples are equal by key, by content (everything but the key), or by
            fields such as json.url,txt.
        take: Take the samples that this file lists, in its order: a key a line, or a column of a Parquet or CSV file.
            If the first line is 'number', the other lines are numbers of samples, from 0.
        sample: Keep random samples, in their order: a part such as 1% or 0.01, or a number such as 1000.
        limit: Keep at most this many samples, the first ones.
        shuffle: Put all samples in a random order.
        sort: Order samples by this column, or by a field inside it, such as json.score or json.score:desc.
        seed: Seed of --shuffle, --sample and --split-into. Another seed gives another order, sample or split.
        columns: Columns to keep, in this order, besides keys, and fields inside them, such as jpg,json.lang; also as a
            JSON list. By default all.
        drop_columns: Columns to leave out; also as a JSON list.
        rename: New name of a column, such as txt=caption.
        cast: New type of a column, such as score=float32. A value that the type cannot hold is an error.
        flatten: Columns of JSON objects or structs whose fields become columns, such as json.lang.
        map: Change samples by a Python function. The function gets a dict of decoded values, and returns new and
            changed fields.
        media_from: Column that names files, by paths below the folder of the table or below --root. The files become a
            column image, audio or video; NAME=COLUMN gives it another name, such as jpg=path.
        fetch: Download the files that the column of the --media-from typed before names by URLs: of the web (http,
            https), or of object stores.
        fetch_private: With --fetch, also ask addresses that are not public, such as those of this machine.
        join: Add the columns of this table to the samples with the same key. The table is Parquet, CSV, JSON Lines or
            Arrow.
        on: Field with the key in the samples and in the table of the --join typed before, such as json.id=id. By
            default the key of samples.
        join_how: What happens to samples without a row in the table: left (the default) fills nulls, inner leaves them
            out.
        join_columns: Columns of the table to add; also as a JSON list. By default all but its key.
    """

    where: str | pc.Expression | None = field(
        default=None, metadata=cli("--where", "EXPR", panel=_ROWS, step="where", repeatable=True)
    )
    filter: str | None = field(default=None, metadata=cli("--filter", "FILE.py:FUNCTION", panel=_ROWS, step="filter"))
    min_side: int | None = field(
        default=None, metadata=cli("--min-side", "PX", panel=_ROWS, step="image_bounds", at_least=0)
    )
    max_side: int | None = field(
        default=None, metadata=cli("--max-side", "PX", panel=_ROWS, step="image_bounds", at_least=0)
    )
    min_aspect_ratio: float | None = field(
        default=None, metadata=cli("--min-aspect-ratio", "X", panel=_ROWS, step="image_bounds", at_least=0)
    )
    max_aspect_ratio: float | None = field(
        default=None, metadata=cli("--max-aspect-ratio", "X", panel=_ROWS, step="image_bounds", at_least=0)
    )
    drop: Drop = field(default="row", metadata=cli("--drop", "WHAT", panel=_ROWS, belongs_to=("where", "image_bounds")))
    dedup: Sequence[str] | None = field(default=None, metadata=cli("--dedup", "FIELD", panel=_ROWS, step="dedup"))
    take: str | os.PathLike[str] | None = field(
        default=None, metadata=cli("--take", "FILE", panel=_ROWS, step="take_keys")
    )
    sample: int | float | None = field(default=None, metadata=cli("--sample", "N", panel=_ROWS, step="sample"))
    limit: int | None = field(default=None, metadata=cli("--limit", "N", panel=_ROWS, step="limit", at_least=0))
    shuffle: bool = field(default=False, metadata=cli("--shuffle", panel=_ORDER, step="shuffle"))
    sort: Sequence[str] | None = field(
        default=None, metadata=cli("--sort", "FIELD", panel=_ORDER, step="sort", repeatable=True)
    )
    seed: int = field(default=0, metadata=cli("--seed", "N", panel=_ORDER, at_least=0))
    columns: Sequence[str] | None = field(
        default=None, metadata=cli("--columns", NAMES, panel=_COLUMNS, step="select", repeatable=True)
    )
    drop_columns: Sequence[str] | None = field(
        default=None, metadata=cli("--drop-columns", NAMES, panel=_COLUMNS, step="drop", repeatable=True)
    )
    rename: Mapping[str, str] | None = field(
        default=None, metadata=cli("--rename", "OLD=NEW", panel=_COLUMNS, step="rename", repeatable=True)
    )
    cast: Mapping[str, str] | None = field(
        default=None, metadata=cli("--cast", "NAME=TYPE", panel=_COLUMNS, step="cast", repeatable=True)
    )
    flatten: Sequence[str] | None = field(
        default=None, metadata=cli("--flatten", NAMES, panel=_COLUMNS, step="flatten", repeatable=True)
    )
    map: str | None = field(default=None, metadata=cli("--map", "FILE.py:FUNCTION", panel=_COLUMNS, step="map"))
    media_from: Sequence[str] | None = field(
        default=None,
        metadata=cli("--media-from", "[NAME=]COLUMN", panel=_COLUMNS, step="media_from", repeatable=True),
    )
    fetch: bool = field(default=False, metadata=cli("--fetch", panel=_COLUMNS, belongs_to=("media_from",)))
    fetch_private: bool = field(
        default=False, metadata=cli("--fetch-private", panel=_COLUMNS, belongs_to=("media_from",))
    )
    join: str | os.PathLike[str] | None = field(
        default=None, metadata=cli("--join", "FILE", panel=_COLUMNS, step="join")
    )
    on: str | Mapping[str, str] | None = field(
        default=None, metadata=cli("--on", "FIELD", panel=_COLUMNS, belongs_to=("join",))
    )
    join_how: Literal["left", "inner"] | None = field(
        default=None, metadata=cli("--join-how", "HOW", panel=_COLUMNS, belongs_to=("join",), choices=("left", "inner"))
    )
    join_columns: Sequence[str] | None = field(
        default=None, metadata=cli("--join-columns", NAMES, panel=_COLUMNS, belongs_to=("join",), repeatable=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """How a dataset is divided into splits.

    Attributes:
        split_into: Write several splits, each into a folder of DST, such as train=0.98,val=0.02. Whole numbers count
            samples, as in val=1000,train=rest. Another --seed gives another split.
        split_by: Keep samples with the same value of this field (or of several, A,B) in one split.
    """

    split_into: Mapping[str, float | None] | None = field(
        default=None, metadata=cli("--split-into", "NAME=SHARE", panel=_SPLITS)
    )
    split_by: Sequence[str] | None = field(default=None, metadata=cli("--split-by", "FIELD", panel=_SPLITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What shares the shards of a job that only reads.

    Attributes:
        workers: Processes that share the shards, at most. By default one per core, up to eight, for jobs of more than
            a few seconds.
        executor: What reads the shards: processes, threads, ray or dask. In Python also any
            concurrent.futures.Executor.
        address: Address of the cluster. By default RAY_ADDRESS or this machine for ray,
            DASK_SCHEDULER_ADDRESS for dask.
    """

    workers: int | None = field(default=None, metadata=cli("--workers", "N", at_least=1))
    executor: str | Executor | None = field(default=None, metadata=cli("--executor", "WHICH", choices=EXECUTORS))
    address: str | None = field(default=None, metadata=cli("--address", "ADDRESS"))

    def __post_init__(self) -> None:
        """Refuse unknown executors, and less than one worker."""
        if self.workers is not None and self.workers < 1:
            raise UsageError("workers must be 1 or more", found=f"workers={self.workers}")
        if self.executor not in (None, *EXECUTORS) and not isinstance(self.executor, Executor):
            raise UsageError("no such executor", found=repr(self.executor)[:80],
                             expected=f"{', '.join(EXECUTORS)}, or a concurrent.futures.Executor")  # fmt: skip
        if self.address is not None and self.executor not in ("ray", "dask"):
            raise UsageError("an address is of a cluster of Ray or Dask", found=f"address={self.address!r}",
                             advice="Add --executor ray or --executor dask.")  # fmt: skip

    def refuse(self, why: str) -> None:
        """Raise UsageError if anything but this process is asked for, where only this process can do the work."""
        if self.workers not in (None, 1) or self.executor is not None:
            found = f"workers={self.workers}" if self.executor is None else f"executor={self.executor!r:.60}"
            raise UsageError(why, expected="one process", found=found,
                             advice="Write the dataset first, or leave out --workers and --executor.")  # fmt: skip

    @property
    def leaves_process(self) -> bool:
        """Whether processes may do a part of the work that do not inherit the current folder."""
        return self.executor not in (None, "processes", "threads")

    @property
    def is_elsewhere(self) -> bool:
        """Whether an executor does the work, in place of lading's own worker processes."""
        return self.executor not in (None, "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a dataset is written.

    Attributes:
        format: Format to write. By default the extension of DST decides, such as .parquet (push: Parquet; salvage: the
            format of SRC).
        options: Option of the format written, as listed by 'lading formats'.
        shard_size: Size of a shard on disk. By default about 256MB (push: 500MB; salvage: the shards of SRC).
        num_shards: Number of shards, in place of their size. Their numbers of samples differ by at most one.
        rows_per_shard: Samples of a shard, in place of its size.
        checksums: Keep checksums of samples and files, of files only, or none. verify and salvage use them.
        schema_policy: Where shards differ in columns: union keeps all, intersect the common ones, strict refuses.
        on_error: Where payload is unavailable: error, warn (write null), drop_row or drop_sample. drop_sample also
            drops samples for which --filter or --map raises, and those whose values --where cannot read.
        ledger: Write one JSON line for each row that is filtered or lost, and each skipped shard, to this file.
        lazy: Write references to the payload of items instead of the payload itself.
        overwrite: Replace the dataset at DST, in one step at the end. Folders that hold other files are refused.
        verify: Read DST back and compare content digests.
        resume: Go on where the same job died or failed: its finished tasks are not done again. If the job has ended, do
            nothing. Without an unfinished job, begin.
        force: With --resume, go on also where nothing shows whether the functions are the same.
        rank: Do only every N-th task: those of this rank, from 0, of --world-size ranks. auto takes both from the
            environment: RANK, SLURM_ARRAY_TASK_ID, SLURM_PROCID or JOB_COMPLETION_INDEX. When all ranks are done,
            lading finish DST writes DST.
        world_size: Number of ranks.
        max_failures: Tasks that may fail by bad data or by a function, after a second try, while the others go on. Then
            the job fails, names all of them, and keeps the finished tasks. By default the first error ends the job.
        dry_run: Read and plan, but write nothing.
        workers: Processes that share the work, at most. The output is the same with any number.
        executor: What does the tasks: processes, threads, ray or dask. In Python also any concurrent.futures.Executor.
        address: Address of the cluster. By default RAY_ADDRESS or this machine for ray,
            DASK_SCHEDULER_ADDRESS for dask.
        threads: Threads of each process. By default the workers share the cores. Two threads read and write at once.
        max_batch_bytes: Payload held in memory at once, in each process.
        temp_dir: Local folder for what functions made, for new orders and other temporary files. --resume finds what
            functions made there, also if DST is remote. By default functions' results lie next to a local DST, and all
            else in TMPDIR.
    """

    format: str = field(metadata=cli("--to", "FORMAT", panel=_WRITE, aliases=("--format",)))
    options: Mapping[str, Any] | None = field(
        default=None, metadata=cli("--to-option", "NAME=VALUE", panel=_WRITE, repeatable=True)
    )
    shard_size: int | str | None = field(default=None, metadata=cli("--shard-size", "SIZE", panel=_WRITE))
    num_shards: int | None = field(default=None, metadata=cli("--num-shards", "N", panel=_WRITE, at_least=1))
    rows_per_shard: int | None = field(default=None, metadata=cli("--rows-per-shard", "N", panel=_WRITE, at_least=1))
    checksums: Checksums = field(
        default="samples", metadata=cli("--checksums", "WHICH", panel=_WRITE, choices=get_args(Checksums))
    )
    schema_policy: SchemaPolicy = field(
        default="union",
        metadata=cli("--schema", "POLICY", panel=_WRITE, aliases=("--schema-policy",), choices=get_args(SchemaPolicy)),
    )
    on_error: OnError = field(
        default="error",
        metadata=cli(
            "--on-error", "POLICY", panel=_RUN, aliases=("--on-materialize-error",), choices=get_args(OnError)
        ),
    )
    ledger: str | os.PathLike[str] | None = field(default=None, metadata=cli("--ledger", "FILE", panel=_RUN))
    lazy: bool = field(default=False, metadata=cli("--lazy/--materialise", panel=_WRITE))
    overwrite: bool = field(default=False, metadata=cli("--overwrite", panel=_WRITE))
    verify: bool = field(default=False, metadata=cli("--verify", panel=_WRITE))
    resume: bool = field(default=False, metadata=cli("--resume", panel=_RUN))
    force: bool = field(default=False, metadata=cli("--force", panel=_RUN))
    rank: int | str | None = field(default=None, metadata=cli("--rank", "R", panel=_RUN))
    world_size: int | None = field(default=None, metadata=cli("--world-size", "N", panel=_RUN, at_least=1))
    max_failures: int = field(default=0, metadata=cli("--max-failures", "N", panel=_RUN, at_least=0))
    dry_run: bool = field(default=False, metadata=cli("--dry-run", panel=_RUN))
    workers: int = field(default=1, metadata=cli("--workers", "N", panel=_RUN, at_least=1))
    executor: str | Executor | None = field(
        default=None, metadata=cli("--executor", "WHICH", panel=_RUN, choices=EXECUTORS)
    )
    address: str | None = field(default=None, metadata=cli("--address", "ADDRESS", panel=_RUN))
    threads: int | None = field(default=None, metadata=cli("--threads", "N", panel=_RUN, at_least=1))
    max_batch_bytes: int | str = field(default="512MB", metadata=cli("--max-batch-bytes", "SIZE", panel=_RUN))
    temp_dir: str | os.PathLike[str] | None = field(default=None, metadata=cli("--temp-dir", "DIR", panel=_RUN))

    def __post_init__(self) -> None:
        """Refuse unknown policies and executors, and less than one process or thread."""
        for word, known in ((self.on_error, get_args(OnError)), (self.schema_policy, get_args(SchemaPolicy))):
            _refuse_unknown_policy(word, known)
        if self.threads is not None and self.threads < 1:
            raise UsageError("threads must be 1 or more", found=f"threads={self.threads}")
        _ = self.sharing  # refuses what is none
        refuse_two_cuts(self.shard_size, self.num_shards, self.rows_per_shard)
        if self.force and not self.resume:
            raise UsageError("force goes with resume", found="--force alone", advice="Add --resume.")
        if self.world_size is not None and self.rank is None:
            raise UsageError("a number of ranks needs the rank of this process", found=f"world_size={self.world_size}",
                             advice="Add --rank auto, or a number from 0.")  # fmt: skip

    @property
    def goes_on(self) -> bool:
        """Whether the job may have been begun by another process."""
        return self.resume or self.rank is not None

    @property
    def shares(self) -> bool:
        """Whether other processes or threads may do a part of the work."""
        return self.workers > 1 or self.executor is not None

    @property
    def sharing(self) -> WorkerOptions:
        """What may share the work."""
        return WorkerOptions(workers=self.workers, executor=self.executor, address=self.address)

    @property
    def counts_samples(self) -> bool:
        """Whether shards end by the number of their samples."""
        return self.num_shards is not None or self.rows_per_shard is not None


def refuse_two_names(**given: object) -> None:
    """Refuse values for both of two names of one argument; None is no value."""
    values = {name: value for name, value in given.items() if value is not None}
    if len(values) > 1:
        raise UsageError("these are names of one argument", expected=" or ".join(given),
                         found=", ".join(f"{name}={value!r}" for name, value in values.items()))  # fmt: skip


def refuse_two_cuts(
    shard_size: int | str | None, num_shards: int | None, rows_per_shard: int | None, *, needs_one: bool = False
) -> None:
    """Refuse several rules of where shards end, numbers below 1, and with `needs_one` no rule."""
    counts = {"num_shards": num_shards, "rows_per_shard": rows_per_shard}
    given = {name: value for name, value in {"shard_size": shard_size, **counts}.items() if value is not None}
    found = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if len(given) > 1 or (needs_one and not given):
        raise UsageError("shards are cut by one rule", expected="shard_size, num_shards or rows_per_shard",
                         found=found or "none of them")  # fmt: skip
    for name, count in counts.items():
        is_count = isinstance(count, SupportsIndex) and not isinstance(count, bool)
        if count is not None and not (is_count and operator.index(count) >= 1):
            raise UsageError(f"{name} is a whole number, 1 or more", found=found)
    if shard_size is not None:
        parse_shard_size(shard_size, advice="For one sample per shard, use --rows-per-shard 1.")


def parse_shard_size(shard_size: int | str, *, advice: str | None = None) -> int:
    """Return the size of a shard in bytes. Raises UsageError for less than one byte."""
    size = parse_bytes(shard_size)
    if size < 1:
        raise UsageError("a shard needs a size", expected="1 byte or more", found=f"shard_size={shard_size!r}",
                         advice=advice)  # fmt: skip
    return size


def _refuse_no_names(option: str, value: object) -> None:
    if value is not None and (isinstance(value, str) or not isinstance(value, Collection)):
        raise UsageError(f"{option} are a list of names", found=repr(value)[:80])


def _refuse_unknown_policy(word: str, known: Collection[str]) -> None:
    if word not in known:
        raise UsageError("no such policy", expected=", ".join(known), found=repr(word))


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_types(kind: type, given: Mapping[str, Any]) -> None:
    """Refuse options of other types than the fields of `kind` have; which words are known, `kind` says itself.

    Raises:
        UsageError: names the option.
    """
    hints = _hints(kind)
    for name, value in given.items():
        if not _fits(value, hints[name]):
            found = f"{name}={value!r:.80}"
            if hints[name] is bool:  # a text that says no would be taken for yes
                raise UsageError("neither true nor false", expected="true or false", found=found)
            told = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name])
            raise UsageError("an option has the wrong type", expected=told, found=found)


def _fits(value: Any, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return isinstance(value, str)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is not None and issubclass(kind, Mapping):
        key, held = inner
        return isinstance(value, Mapping) and all(_fits(k, key) and _fits(v, held) for k, v in value.items())
    if kind is not None:  # a text is no list of its letters
        import numpy as np

        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
        return listed and all(_fits(item, inner[0]) for item in value)
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    return isinstance(value, NoneType if hint is None else hint)
