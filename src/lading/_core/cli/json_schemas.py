"""JSON Schemas of what commands print with `--json`, made from the types of their results."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from inspect import cleandoc
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from lading._core.cli.formats import FormatDoc, OptionDoc
from lading._core.jobs.convert.clean import Cleaned
from lading._core.jobs.convert.estimate import Estimate
from lading._core.jobs.convert.summary import ConvertSummary
from lading._core.jobs.dataset.demo import DemoStep
from lading._core.jobs.dataset.export import ExportSummary
from lading._core.jobs.dataset.index import IndexSummary
from lading._core.jobs.dataset.merge import MergeSummary
from lading._core.jobs.push.push import PushSummary
from lading._core.jobs.salvage.repair import RepairResult
from lading._core.jobs.salvage.salvage import SalvageResult
from lading._core.jobs.stats.info import Info
from lading._core.jobs.stats.values import Stats
from lading._core.jobs.verify.diff import DiffResult
from lading._core.jobs.verify.doctor import Diagnosis
from lading._core.jobs.verify.verify import VerifyResult
from lading._core.json_forms import ErrorJson, InJson
from lading._core.train.plan import Plan
from lading.options import help_texts

__all__ = ["schema_of", "schemas"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE: Final = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True)
class _Printed:
    """A result with more keys than its fields.

    Attributes:
        kind: a dataclass.
        properties: properties of the class that are printed too.
        has_destination: whether the destination is printed too.
    """

    kind: type
    properties: Sequence[str] = ()
    has_destination: bool = False


class _DemoJson(TypedDict):
    """The demo.

    Attributes:
        same: whether all digests are equal.
        steps: the datasets, in order.
    """

    same: bool
    steps: list[DemoStep]


class _SplitsJson(TypedDict):
    """A source with several splits.

    Attributes:
        splits: each split, by name.
    """

    splits: Mapping[str, Info]


class _SampleJson(TypedDict, total=False):
    """A sample: a key for each field, and these. Bytes and arrays are objects that describe them.

    Attributes:
        __key__: key of the sample.
        sample_id: id of the document.
        items: items of the document, in order.
    """

    __key__: str
    sample_id: str
    items: list[Mapping[str, Any]]


class _FormatsJson(TypedDict):
    """The formats and their options.

    Attributes:
        formats: the formats.
        interleaved_options: options of reading documents.
    """

    formats: list[FormatDoc]
    interleaved_options: list[OptionDoc]


class _SkillJson(TypedDict):
    """The page for agents.

    Attributes:
        text: the file SKILL.md.
    """

    text: str


class _DigestJson(TypedDict):
    """The content digest.

    Attributes:
        ordered: digest of the samples in their order.
        unordered: digest of the samples in any order.
        count: number of samples.
    """

    ordered: str | None
    unordered: str
    count: int


class CopyJson(TypedDict):
    """A local copy of a remote shard.

    Attributes:
        url: URL of the shard; empty if it is unknown.
        path: the copy.
        size_bytes: size of the copy.
        used: time of the last use, in UTC.
    """

    url: str
    path: str
    size_bytes: int
    used: str


class CopiesJson(TypedDict):
    """Copies, added up.

    Attributes:
        copies: number of copies.
        size_bytes: size of all of them.
    """

    copies: int
    size_bytes: int


class _UsageJson(TypedDict):
    """The size of a cache.

    Attributes:
        copies: number of copies.
        size_bytes: size of all of them.
        folders: size by remote folder.
    """

    copies: int
    size_bytes: int
    folders: Mapping[str, int]


class _PrunedJson(TypedDict):
    """What was deleted, and what is left.

    Attributes:
        deleted: the deleted copies.
        left: the copies that are left.
    """

    deleted: CopiesJson
    left: CopiesJson


@cache
def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return what each verb prints, and `error`: by the words behind `lading` a type."""
    converted = _Printed(ConvertSummary, has_destination=True)
    return {
        "demo": {"demo": _DemoJson},
        "info": {"info": Info, "info, of several splits": _SplitsJson},
        "head": {"head, each line": _SampleJson},
        "stats": {"stats": Stats},
        "sql": {"sql, each line": Mapping[str, Any], "sql, with DST": converted},
        "plan": {"plan": Plan, "plan --job": Estimate},
        "formats": {"formats": _FormatsJson},
        "skill": {"skill": _SkillJson},
        "convert": {"convert": converted},
        "push": {"push": PushSummary},
        "export": {"export": _Printed(ExportSummary, has_destination=True)},
        "merge": {"merge": MergeSummary},
        "finish": {"finish": converted},
        "verify": {"verify": _Printed(VerifyResult, ("ok", "problems", "summary"))},
        "doctor": {"doctor": _Printed(Diagnosis, ("ok",))},
        "digest": {"digest": _DigestJson},
        "diff": {"diff": DiffResult},
        "repair": {"repair": _Printed(RepairResult, ("ok",))},
        "salvage": {"salvage": _Printed(SalvageResult, ("ok",), has_destination=True)},
        "index": {"index": IndexSummary},
        "cache": {"cache ls": list[CopyJson], "cache du": _UsageJson, "cache prune": _PrunedJson},
        "clean": {"clean": _Printed(Cleaned, ("size_bytes",))},
        "error": {"error": ErrorJson},
    }


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints with `--json`; of `error`, that of an error of any verb."""
    defs: dict[str, Any] = {}
    forms = [{"title": title, **_form(form, defs)} for title, form in schemas()[name].items()]
    root = forms[0] if len(forms) == 1 else {"title": name, "anyOf": forms}
    return {"$schema": _DIALECT, **root, **({"$defs": defs} if defs else {})}


def _form(form: Any, defs: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(form, _Printed):
        return _object(form, defs) if is_dataclass(form) or is_typeddict(form) else _schema(form, defs)
    more = {"destination": {"type": "string", "description": "As it was typed."}} if form.has_destination else {}
    for name in form.properties:
        read = getattr(form.kind, name)
        more[name] = {**_schema(get_type_hints(read.fget)["return"], defs), "description": _sentence(read.__doc__)}
    found = _object(form.kind, defs)
    return {**found, "properties": {**more, **found["properties"]}, "required": [*more, *found["required"]]}


def _object(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a dataclass or TypedDict."""
    hints, texts = get_type_hints(kind, include_extras=True), help_texts(kind)
    names = list(hints) if is_typeddict(kind) else [name for name in hints if name in kind.__dataclass_fields__]
    required = [name for name in names if not is_typeddict(kind) or name in kind.__required_keys__]
    described = {name: {**_schema(hints[name], defs), "description": _sentence(texts[name])} for name in names}
    first = _sentence((kind.__doc__ or "").partition("\n\n")[0])
    return {"type": "object", "description": first, "properties": described, "required": required,
            "additionalProperties": kind is _SampleJson}  # fmt: skip


def _schema(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; classes go to `defs`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _schema(next((one.kind for one in args if isinstance(one, InJson)), args[0]), defs)
    if origin in (Required, NotRequired):
        return _schema(args[0], defs)
    if origin is not None:
        return _generic(origin, args, defs)
    if kind is Any or kind in _SIMPLE:
        return {} if kind is Any else {"type": _SIMPLE[kind]}
    name = kind.__name__.removesuffix("Json")
    if name not in defs:
        defs[name] = {}  # a class may hold itself
        defs[name] = _object(kind, defs)
    return {"$ref": f"#/$defs/{name}"}


def _generic(origin: Any, args: tuple[Any, ...], defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type with arguments."""
    if origin is Literal:
        return {"enum": [*args]}
    parts = [_schema(one, defs) for one in args if one is not ...]
    if origin in (Union, types.UnionType):
        simple = all(part.keys() == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if simple else {"anyOf": parts}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": parts[1]}
    if len(parts) > 1:
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    return {"type": "array", "items": parts[0]}


def _sentence(text: str) -> str:
    """Return a description, as docstrings have it, as a sentence."""
    flat = " ".join(cleandoc(text).split()).replace("None", "null")
    return f"{flat[0].upper()}{flat[1:]}".rstrip(".") + "."
