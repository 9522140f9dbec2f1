"""The manifest: what a dataset holds, and its shards. Values only; files are read and written elsewhere.

    _lading/manifest.json          one JSON object of a few KB: what all shards have in common, and their totals
    _lading/shards.arrow           Arrow IPC file, a row a shard (`SHARDS_SCHEMA`), mapped when it is read; its schema's
                                   metadata is a copy of the manifest
    _lading/index-000000.arrow     Arrow IPC file of references, a batch a shard
    _lading/extents-000000.arrow   Arrow IPC file of the extents of files (`_core.storage.extents`), a batch a shard

The manifest's appearance is the commit. Each of many writers has a manifest of its own; `merge` makes them one.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.align import union_schema
from lading._core.content.digests import DatasetDigest
from lading._core.features.items import VIEWS
from lading._core.features.types import FEATURE_KEY, fingerprint
from lading._core.units import count
from lading.errors import BadReference, DataError, LimitExceeded, SchemaMismatch, SidecarMismatch, UsageError

__all__ = [
    "EXTENTS_NAME",
    "FOLDER",
    "INDEX_NAME",
    "LOST_COUNT",
    "LOST_NAME",
    "MANIFEST_NAME",
    "REPAIRING_NAME",
    "SHARDS_NAME",
    "SHARDS_SCHEMA",
    "VERSION",
    "Manifest",
    "changes",
    "from_json",
    "kept_manifest",
    "leads_outside",
    "lookup",
    "merge",
    "read_shards",
    "seen_from",
    "shards_table",
    "to_json",
    "validate",
    "write_shards",
]

VERSION = 1
"""Version of the written layout. Newer versions are refused."""

FOLDER = "_lading"
"""Folder of lading's own files, next to the shards."""

MANIFEST_NAME = "manifest.json"
LOST_NAME = "lost.jsonl"
REPAIRING_NAME = "repairing.json"
"""Of a dataset on a store: what `lading repair` still has to do there, from before its first change until the last."""
"""List of what a salvage or a repair lost, in that folder."""

LOST_COUNT = f"samples lost, listed in {FOLDER}/{LOST_NAME}"
"""Name of the number of these samples in `Manifest.counts`."""

SHARDS_NAME = "shards.arrow"
INDEX_NAME = "index-{:06d}.arrow"
EXTENTS_NAME = "extents-{:06d}.arrow"

SHARDS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("num_samples", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("payload_bytes", pa.int64(), nullable=False),
        pa.field("xxh3", pa.string()),
        pa.field("index_file", pa.string()),
        pa.field("index_batch", pa.int32()),
        pa.field("entry", pa.string()),
        pa.field("beside_bytes", pa.int64(), nullable=False),
        pa.field("beside_xxh3", pa.list_(pa.struct([("name", pa.string()), ("xxh3", pa.string())]))),
        pa.field("extents_file", pa.string()),
        pa.field("extents_batch", pa.int32()),
    ]
)
"""One row a shard, in order. `path` is below the dataset's folder; `xxh3` is the xxh3-64 of the file, 16 hex digits.
The references are batch `index_batch` of the file `index_file`; `entry` is the shard's entry in the format's own index.
`beside_bytes` is the size of the shard's other files, and `beside_xxh3` the checksum of each by its name in the shard's
folder. The extents of its files are batch `extents_batch` of the file `extents_file`. Unknown checksums and extents are
null."""


_TOTALS = ("num_samples", "size_bytes", "payload_bytes", "beside_bytes")
_KEY = "__key__"
_COPY_KEY = b"lading.manifest"
_MOST_SHOWN = 80


@cache
def own_version() -> str | None:
    """Return the version of lading that is installed; None if none is."""
    from importlib.metadata import PackageNotFoundError, version  # a tenth of a worker's start

    try:
        return version("lading")
    except PackageNotFoundError:
        return None


def _created_by() -> str:
    return f"lading {own_version() or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class Manifest:
    """Common properties of the shards of a dataset, and their totals.

    Attributes:
        format: name of the shard format.
        view: `samples` or `interleaved`.
        schema: schema of all rows, with features in its fields.
        num_samples: samples in all shards.
        num_shards: shards.
        size_bytes: bytes of their files.
        payload_bytes: bytes of values, before framing and compression.
        options: how the shards were written, JSON-able; readers open them with these.
        counts: what was reported while writing, by a short phrase.
        digests: `DatasetDigest.to_json()`, or empty.
        sidecars: the peers' own index files, by path below the dataset's folder.
        files: xxh3-64 of sidecars, index files and list of shards, 16 hex digits, by path below the dataset's folder.
        rank: the writer, if one of many.
        created_by: name and version of what wrote it.
        version: version of the layout of these files.
    """

    format: str
    view: str
    schema: pa.Schema
    num_samples: int = 0
    num_shards: int = 0
    size_bytes: int = 0
    payload_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, Any] = field(default_factory=dict)
    sidecars: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    created_by: str = field(default_factory=_created_by)
    version: int = VERSION


_PLAIN = ("format", "view", "num_samples", "num_shards", "size_bytes", "payload_bytes", "rank", "created_by", "version")
_TYPES = {
    "format": str,
    "view": str,
    "created_by": str,
    "options": dict,
    "counts": dict,
    "digests": dict,
    "files": dict,
}


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest as JSON: the schema as base64 of its Arrow IPC form, and again as a list for people."""
    fields = [
        {
            "name": column.name,
            "type": str(column.type),
            "nullable": column.nullable,
            "feature": (column.metadata or {}).get(FEATURE_KEY, b"").decode() or None,
        }
        for column in manifest.schema
    ]
    document = {name: getattr(manifest, name) for name in _PLAIN} | {
        "options": dict(manifest.options),
        "counts": dict(manifest.counts),
        "digests": dict(manifest.digests),
        "sidecars": manifest.sidecars,
        "files": dict(manifest.files),
        "fields": fields,
        "fingerprint": fingerprint(manifest.schema),
        "schema": base64.b64encode(manifest.schema.serialize()).decode(),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def from_json(data: bytes, *, file: str | None = None) -> Manifest:
    """Parse the JSON of `to_json`.

    Raises:
        DataError: the file is not a manifest, is of a newer version, or contradicts itself; names the file.
    """
    try:
        document = json_text.loads(data)
        _check(document)
        schema = _schema(document)
        plain = {name: document[name] for name in _PLAIN}
        sidecars = tuple(document["sidecars"])
    except KeyError as error:
        raise DataError("not a manifest", file=file, expected=f"a value for {error}") from None
    except DataError as error:
        raise error.at(file=file) from None
    except (pa.ArrowException, TypeError, ValueError, OSError) as error:
        raise DataError(f"not a manifest: its schema cannot be read ({error})", file=file) from None
    _inside(pa.array([*sidecars, *document["files"]], pa.string()), file)
    return Manifest(
        **plain,
        schema=schema,
        options=document["options"],
        counts=document["counts"],
        digests=document["digests"],
        sidecars=sidecars,
        files=document["files"],
    )


def _schema(document: Mapping[str, Any]) -> pa.Schema:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"], validate=True)))
    found = fingerprint(schema)
    if found != document["fingerprint"]:
        raise DataError("the schema is not that of the fingerprint", expected=document["fingerprint"], found=found)
    twice = next((name for name, count in Counter(schema.names).items() if count > 1), None)
    if twice is not None:
        raise DataError("the schema names a column twice", column=twice)
    if not len(schema) and document["num_samples"]:
        raise DataError("the schema has no columns", found=f"{document['num_samples']} samples")
    return schema


def _check(document: Any) -> None:
    if not isinstance(document, dict) or type(document.get("version")) is not int or document["version"] < 1:
        raise DataError("not a manifest", expected="a JSON object with a version from 1 on", found=repr(document)[:80])
    if document["version"] > VERSION:
        raise DataError(
            "the manifest is of a newer version",
            expected=f"version {VERSION}",
            found=f"version {document['version']} by {document.get('created_by')}",
            advice="Upgrade lading, or open the shards themselves with a pattern.",
        )
    for name, kind in _TYPES.items():
        if not isinstance(document[name], kind):
            raise DataError("not a manifest", expected=f"{name}: {kind.__name__}", found=repr(document[name])[:80])
    if document["view"] not in VIEWS:
        raise DataError("not a manifest", expected=f"view: {' or '.join(VIEWS)}", found=repr(document["view"])[:80])
    _check_numbers(document)
    for name, paths in (("sidecars", document["sidecars"]), ("files", [*document["files"]])):
        if not _are_texts(paths):
            raise DataError("not a manifest", expected=f"{name}: a list of paths", found=ascii(paths)[:80])
    DatasetDigest.from_json({**DatasetDigest().to_json(), **document["digests"]})  # some entries are optional
    _check_options(document["options"])


def _check_options(options: Mapping[str, Any]) -> None:
    roots = options.get("roots", [])
    if not isinstance(roots, list) or not all(
        isinstance(root, dict) and "place" in root and _are_texts([*root.values()]) for root in roots
    ):
        raise DataError("not a manifest", expected="options.roots: a list of places", found=ascii(roots)[:80])
    for name in ("reading", "interleaved"):
        if not isinstance(options.get(name, {}), dict):
            raise DataError("not a manifest", expected=f"options.{name}: dict", found=repr(options[name])[:80])
    for name, value in options.get("interleaved", {}).items():
        one = name == "sample_id_field"
        if not (isinstance(value, str | None) if one else _are_texts(value)):
            expected = f"options.interleaved.{name}: {'a text, or none' if one else 'a list of texts'}"
            raise DataError("not a manifest", expected=expected, found=repr(value)[:80])


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and json_text.is_unicode(text) for text in value)


def _check_numbers(document: Mapping[str, Any]) -> None:
    for name in ("num_samples", "num_shards", "size_bytes", "payload_bytes"):
        if not _is_whole(document[name]):
            raise DataError("not a manifest", expected=f"{name}: a whole number", found=repr(document[name])[:80])
    if document["rank"] is not None and not _is_whole(document["rank"]):
        raise DataError("not a manifest", expected="rank: a whole number, or none", found=repr(document["rank"])[:80])
    if not all(map(_is_whole, document["counts"].values())):
        raise DataError("not a manifest", expected="counts: whole numbers", found=repr(document["counts"])[:80])


def _is_whole(value: object) -> bool:
    return type(value) is int and value >= 0


def shards_table(
    path: Sequence[str],
    num_samples: Sequence[int],
    size_bytes: Sequence[int],
    payload_bytes: Sequence[int],
    more: Mapping[str, Sequence[Any]] | None = None,
) -> pa.Table:
    """Return shards as a table of `SHARDS_SCHEMA`, in the order given.

    Args:
        path: of each shard, below the dataset's folder.
        num_samples: samples in each.
        size_bytes: bytes of each file.
        payload_bytes: bytes of the values in each.
        more: further columns by name. A column that is not given is null; `beside_bytes` is 0.

    Raises:
        BadReference: a path leads out of the dataset's folder.
        DataError: a number is negative.
    """
    given = {
        "path": path,
        "num_samples": num_samples,
        "size_bytes": size_bytes,
        "payload_bytes": payload_bytes,
        "beside_bytes": [0] * len(path),
        **(more or {}),
    }
    columns = [
        pa.array(given[field.name], field.type) if field.name in given else pa.nulls(len(path), field.type)
        for field in SHARDS_SCHEMA
    ]
    return _checked(pa.Table.from_arrays(columns, schema=SHARDS_SCHEMA), None)


def write_shards(shards: pa.Table, manifest: Manifest) -> pa.Buffer:
    """Return the bytes of `shards.arrow`: an Arrow IPC file, uncompressed so that it can be mapped.

    It holds a copy of the manifest, in case the manifest is damaged (`kept_manifest`).
    """
    shards = shards.replace_schema_metadata({_COPY_KEY: to_json(manifest)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, shards.schema) as writer:
        writer.write_table(shards)
    return sink.getvalue()


def kept_manifest(buffer: pa.Buffer, *, file: str | None = None) -> Manifest:
    """Return the copy of the manifest in `shards.arrow`, without the checksum of that file.

    Raises:
        DataError: there is no copy; names the file.
    """
    copy = _copy_in(buffer, file)
    if copy is None:
        raise DataError("the list of shards has no copy of the manifest", file=file)
    return from_json(copy, file=file)


def changes(data: bytes, buffer: pa.Buffer, listed_as: str, *, file: str | None = None) -> list[SidecarMismatch]:
    """Return how a manifest differs from its copy in `shards.arrow`; nothing without a copy.

    Args:
        data: the manifest as JSON.
        buffer: of `shards.arrow`.
        listed_as: the path of that in the manifest, which alone has its checksum.
        file: of the manifest.

    Raises:
        DataError: one of the two cannot be read.
    """
    copy = _copy_in(buffer, file)
    if copy is None:
        return []
    for text in (data, copy):
        from_json(text, file=file)
    ours, theirs = json_text.loads(data), json_text.loads(copy)
    ours["files"].pop(listed_as, None)
    return [
        SidecarMismatch("the manifest differs from its copy in the list of shards", file=file, column=name,
                        expected=repr(theirs.get(name))[:_MOST_SHOWN], found=repr(ours.get(name))[:_MOST_SHOWN],
                        advice="The file was changed since it was written.")
        for name in {**theirs, **ours}
        if json_text.canonical(ours.get(name)) != json_text.canonical(theirs.get(name))
    ]  # fmt: skip


def _copy_in(buffer: pa.Buffer, file: str | None) -> bytes | None:
    try:
        copy: bytes | None = (pa.ipc.open_file(buffer).schema.metadata or {}).get(_COPY_KEY)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"not a list of shards ({error})", file=file) from None
    return copy


def read_shards(buffer: pa.Buffer, *, file: str | None = None) -> pa.Table:
    """Return the shards of `shards.arrow`; shares the buffer's memory.

    Raises:
        DataError: it is invalid; names the file.
        BadReference: a path leads out of the dataset's folder.
    """
    try:
        table = pa.ipc.open_file(buffer).read_all()
        table.validate(full=True)
        later = [field for field in SHARDS_SCHEMA if field.name not in table.schema.names and field.nullable]
        for field in later if table.schema.names == SHARDS_SCHEMA.names[: table.num_columns] else ():
            table = table.append_column(field, pa.nulls(len(table), field.type))  # written before this column existed
        names = table.schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"not a list of shards ({error})", file=file) from None
    if names != SHARDS_SCHEMA.names or not table.schema.equals(SHARDS_SCHEMA):
        expected, found = (", ".join(f"{f.name}: {f.type}" for f in s) for s in (SHARDS_SCHEMA, table.schema))
        raise DataError("not a list of shards", file=file, expected=expected, found=found)
    return _checked(table.replace_schema_metadata(), file)


# Absolute, with a scheme or drive, with a `.`, `..` or empty part, with a backslash or a control character.
_OUTSIDE = r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)(\.{1,2})?(/|$)|[\x00-\x1f\\]"


def leads_outside(path: str) -> bool:
    """Return whether a manifest may not hold a path: it leads out of the dataset's folder, or is not normalised."""
    return re.search(_OUTSIDE, path) is not None


def _inside(paths: pa.Array | pa.ChunkedArray, file: str | None) -> None:
    bad = pc.fill_null(pc.match_substring_regex(paths, _OUTSIDE), fill_value=False)
    if pc.any(bad).as_py():
        row = int(np.argmax(bad.to_numpy(zero_copy_only=False)))
        raise BadReference(
            "a path leads out of the dataset's folder", file=file, row=row, found=repr(paths[row].as_py())[:200]
        )


def _checked(shards: pa.Table, file: str | None) -> pa.Table:
    for column in SHARDS_SCHEMA:
        if not column.nullable and shards[column.name].null_count:
            raise DataError("a null where none is allowed", file=file, column=column.name)
    for name in ("path", "index_file", "extents_file"):
        _inside(shards[name], file)
    files = pc.list_flatten(shards["beside_xxh3"])
    beside = pc.struct_field(files, "name")
    if beside.null_count or pc.struct_field(files, "xxh3").null_count:
        raise DataError("a null where none is allowed", file=file, column="beside_xxh3")
    _inside(pc.replace_substring(beside, "/", "//"), file)  # a name in the shard's own folder
    for name in (*_TOTALS, "index_batch", "extents_batch"):
        negative = pc.min(shards[name]).as_py()
        if negative is not None and negative < 0:
            raise DataError("a number of a shard is negative", file=file, column=name, found=negative)
    for name in _TOTALS:
        if np.sum(shards[name].to_numpy(), dtype=np.float64) >= 1 << 63:
            raise LimitExceeded("the shards are too large to be counted", file=file, column=name)
    return shards


def merge(
    parts: Sequence[tuple[Manifest, pa.Table]], folders: Sequence[str] | None = None
) -> tuple[Manifest, pa.Table]:
    """Merge manifests and lists of shards, in order. Associative; a single part is returned unchanged.

    Totals, counts and digests add up; the digest in order is unknown after a merge. Schemas are united, and so are the
    roles of fields of interleaved samples. The first `created_by` wins.

    Args:
        parts: at least one.
        folders: folder of each part, for errors; None for parts that are named by their ranks.

    Raises:
        SchemaMismatch: formats, views or options differ, or no schema holds all rows.
        UsageError: there are no parts.
    """
    if not parts:
        raise UsageError("there is no manifest to merge")
    places = [None] * len(parts) if folders is None else folders
    first, *others = (_called(manifest, place) for (manifest, _), place in zip(parts, places, strict=True))
    merged = parts[0]
    for part, name in zip(parts[1:], others, strict=True):
        merged = _merged(merged, part, first, name)
    return merged


def seen_from(prefix: str, part: tuple[Manifest, pa.Table]) -> tuple[Manifest, pa.Table]:
    """Return a manifest and its list of shards with names relative to a parent folder."""
    manifest, shards = part
    for column in ("path", "index_file", "extents_file"):
        at = shards.schema.get_field_index(column)
        named = pc.binary_join_element_wise(prefix, shards[column], "")
        shards = shards.set_column(at, shards.schema.field(at), named)
    options = dict(manifest.options)
    if "roots" in options:
        options["roots"] = [_root_from(prefix, root) for root in options["roots"]]
    files = {prefix + name: taken for name, taken in manifest.files.items()}
    return replace(manifest, options=options, files=files), shards


def _root_from(prefix: str, root: Mapping[str, str]) -> Mapping[str, str]:
    """Return a root with its place relative to a parent folder, unless it is not next to the dataset."""
    beside = posixpath.normpath(root.get("beside", ".."))
    if beside == ".." or beside.startswith(("../../", "/")) or beside == "../..":
        return {"place": root["place"]}
    return {**root, "beside": posixpath.normpath(prefix + beside)}


def _called(manifest: Manifest, folder: str | None) -> str:
    if folder is not None:
        return folder
    return f"a dataset of {count(manifest.num_samples, 'sample')}" if manifest.rank is None else f"rank {manifest.rank}"


def _merged(
    one: tuple[Manifest, pa.Table], two: tuple[Manifest, pa.Table], first: str, second: str
) -> tuple[Manifest, pa.Table]:
    """Merge two parts; errors call them `first` and `second`."""
    (a, shards_a), (b, shards_b) = one, two
    options = _options_of_both(a.options, b.options)
    alike = {"format": a.format == b.format, "view": a.view == b.view, "options": options is not None}
    for name in (name for name in alike if not alike[name]):
        found = f"{getattr(a, name)!r} ({first}) and {getattr(b, name)!r} ({second})"
        raise SchemaMismatch(f"manifests of one dataset differ in their {name}", found=found)
    if a.num_samples and b.num_samples and (_KEY in a.schema.names) != (_KEY in b.schema.names):
        raise SchemaMismatch("of the parts of one dataset some have keys and others none", column=_KEY,
                             found=f"{first} and {second}")  # fmt: skip
    schema, _ = union_schema([(first, a.schema), (second, b.schema)])
    digests: Mapping[str, Any] = {}
    if a.digests and b.digests:
        digests = DatasetDigest.from_json(a.digests).merge(DatasetDigest.from_json(b.digests)).to_json()
    merged = replace(
        a,
        schema=schema,
        options=options or {},
        num_samples=a.num_samples + b.num_samples,
        num_shards=a.num_shards + b.num_shards,
        size_bytes=a.size_bytes + b.size_bytes,
        payload_bytes=a.payload_bytes + b.payload_bytes,
        counts={name: a.counts.get(name, 0) + b.counts.get(name, 0) for name in {**a.counts, **b.counts}},
        digests=digests,
        sidecars=tuple(dict.fromkeys([*a.sidecars, *b.sidecars])),
        files={**a.files, **b.files},
        rank=None,
    )
    return merged, pa.concat_tables([shards_a, shards_b])


def _options_of_both(*both: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Merge the options of two manifests; None if they differ. A field without role takes the role of the other.

    A writer knows which items have entries of a field only after it has seen a value of the field.
    """
    if both[0] == both[1]:
        return both[0]
    if any("roots" in options for options in both):
        roots = {root["place"]: root for options in both for root in options.get("roots", [])}
        one, other = ({name: value for name, value in options.items() if name != "roots"} for options in both)
        rest = _options_of_both(one, other)
        return None if rest is None else {**rest, "roots": [*roots.values()]}
    roles: dict[str, str] = {}
    others = []
    for options in both:
        fields = options.get("interleaved", {})
        lists = {role: names for role, names in fields.items() if role.startswith("per_")}
        if any(roles.setdefault(name, role) != role for role, names in lists.items() for name in names):
            return None
        others.append({**options, "interleaved": {name: fields[name] for name in fields if name not in lists}})
    if others[0] != others[1]:
        return None
    united = {role: [name for name in roles if roles[name] == role] for role in dict.fromkeys(roles.values())}
    return {**others[0], "interleaved": {**others[0]["interleaved"], **united}}


def _totals(shards: pa.Table) -> dict[str, Any]:
    sums = {name: pc.sum(shards[name]).as_py() or 0 for name in _TOTALS}
    sums["size_bytes"] += sums.pop("beside_bytes")
    return {"num_shards": len(shards), **sums}


def lookup(ends: NDArray[np.int64], ordinals: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the shard, and the row in it, of each sample by its number in the dataset.

    Args:
        ends: number of samples in each shard and all before it.
        ordinals: numbers of the samples.

    Raises:
        IndexError: a sample does not exist; names the first.
    """
    total = int(ends[-1]) if len(ends) else 0
    wrong = (ordinals < 0) | (ordinals >= total)
    if wrong.any():
        raise IndexError(f"sample {int(ordinals[np.argmax(wrong)])} of {total}")
    shard = np.searchsorted(ends, ordinals, "right")
    starts = np.concatenate([[0], ends[:-1]])
    return shard.astype(np.int32), ordinals - starts[shard] if total else ordinals


def validate(manifest: Manifest, shards: pa.Table, *, file: str | None = None) -> None:
    """Check the totals of a manifest against its list of shards.

    Raises:
        SidecarMismatch: they disagree; names what differs.
    """
    for name, total in _totals(shards).items():
        if getattr(manifest, name) != total:
            raise SidecarMismatch(
                f"the manifest's {name} is not that of its shards",
                file=file,
                expected=getattr(manifest, name),
                found=total,
            )
