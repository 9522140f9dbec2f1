"""The data card of a repository on Hugging Face's Hub: `README.md`, with YAML at its top.

The YAML names the files of each split, and for Parquet the features and counts as `datasets` writes them. What the card
says of other configs and splits stays, and so does its text.

Source: datasets 5.2.0, utils/metadata.py (MetadataConfigs), info.py (DatasetInfo._to_yaml_dict), features/features.py
(Features._to_yaml_list).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lading._core.dataset.source.hub_configs import CARD, read_configs
from lading._core.features.types import feature_of
from lading._core.units import format_bytes
from lading.errors import DataError

__all__ = ["PushedSplit", "card_text", "draft_text", "features_as_yaml", "splits_of_card"]

_FRONT: Final = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
                 (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"))  # fmt: skip
_KEY: Final = re.compile(r"""["']?([A-Za-z_][\w-]*)["']?[ \t]*:(?=\s|\Z)""")
_BLOCK: Final = "<!-- lading: "
_LISTS: Final = {"LargeList": "large_list", "List": "list", "Sequence": "sequence"}


@dataclass(frozen=True, slots=True)
class PushedSplit:
    """What was pushed of a split.

    Attributes:
        files: paths of its files in the repository, in order.
        samples: number of samples.
        rows: number of rows.
        size_bytes: bytes of the files.
        payload_bytes: bytes of values.
        schema: columns of the dataset.
        features: features of the columns, as `datasets` keeps them in the schema of Parquet; none of other formats.
    """

    files: Sequence[str]
    samples: int
    rows: int
    size_bytes: int
    payload_bytes: int
    schema: pa.Schema
    features: Mapping[str, Any] = field(default_factory=dict)


def card_text(
    old: bytes, repo: str, config: str, folder: str, splits: Mapping[str, PushedSplit], name: str, licence: str | None
) -> str:
    """Return a card.

    Args:
        old: the card that is there; empty if there is none.
        repo: `ORG/NAME`.
        config: name of the config.
        folder: folder of the config's files.
        splits: what was pushed.
        name: format of the files.
        licence: identifier of the licence, such as `mit`; None keeps that of the old card.

    Raises:
        DataError: the YAML of the old card is invalid.
    """
    front, text, source = _parts(old)
    told, known = dict(front), splits_of_card(old, config)
    if licence is not None:
        told["license"] = licence
    told["configs"] = _configs(known, front, config, folder, splits, name)
    told["dataset_info"] = _info(front.get("dataset_info"), config, splits if name == "parquet" else {})
    if not told["dataset_info"]:
        del told["dataset_info"]
    samples, counted = _counted(text, config, [split for split in known if split not in splits])
    if _BLOCK in text or "size_categories" not in front:
        told["size_categories"] = [_size(samples + sum(split.samples for split in splits.values()))]
    block = _block(repo, config, folder, splits, name, counted)
    return f"---\n{_changed(source, front, told)}---\n{_with_block(text, repo, config, block)}"


def draft_text(old: bytes, licence: str | None) -> str:
    """Return the card that is there with a licence, for the Hub to check. Raises DataError as `card_text`."""
    front, _, source = _parts(old)
    read_configs(old, CARD)
    return f"---\n{_changed(source, front, front if licence is None else {**front, 'license': licence})}---\n"


def splits_of_card(old: bytes, config: str) -> Mapping[str, Sequence[str]]:
    """Return the patterns of the files of each split that a card lists for a config."""
    return next((one.splits for one in read_configs(old, CARD) if one.name == config), {})


def _parts(old: bytes) -> tuple[dict[str, Any], str, str]:
    """Return the values of the YAML of a card, its text, and the YAML itself."""
    import yaml

    try:
        text = old.decode("utf-8-sig")
        found = _FRONT.match(text)
        front = (yaml.safe_load(found[1]) if found else None) or {}
    except UnicodeDecodeError:
        raise DataError("the card is not UTF-8", file=CARD, advice="Correct it on the Hub.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError("the card has invalid YAML", file=CARD, found=" ".join(str(error).split())[:200],
                        advice="Correct it on the Hub.") from None  # fmt: skip
    if not isinstance(front, dict):
        raise DataError("the YAML of the card is no mapping", file=CARD, advice="Correct it on the Hub.")
    return (front, text[found.end() :], found[1]) if found else ({}, text, "")


def _changed(source: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return YAML with new values. What does not change stays as people wrote it: `no`, `1.10`, comments."""
    import yaml

    def dumped(told: Mapping[str, Any]) -> str:
        return yaml.safe_dump(dict(told), sort_keys=False, allow_unicode=True) if told else ""

    same = {name for name in new if name in old and old[name] == new[name]}
    left = {name: value for name, value in new.items() if name not in same}
    parts, name = [], ""
    for line in source.splitlines(keepends=True):
        key = _KEY.match(line)
        name = name if key is None else key[1]
        if key is not None and name in left:
            parts.append(dumped({name: left.pop(name)}))
        if name in same or name not in old:
            parts.append(line)
    text = "".join(parts)
    text += dumped(left) if not text or text.endswith("\n") else f"\n{dumped(left)}"
    with suppress(yaml.YAMLError, ValueError):
        if (yaml.safe_load(text) or {}) == dict(new):
            return text
    return dumped(new)  # of a form without a key at the begin of a line


def _configs(
    known: Mapping[str, Sequence[str]], front: Mapping[str, Any], config: str, folder: str,
    splits: Mapping[str, PushedSplit], name: str,
) -> list[Any]:  # fmt: skip
    """Return the configs of the card, with the files of these splits."""
    patterns: dict[str, Any] = {split: list(paths) for split, paths in known.items()}
    for split, pushed in splits.items():
        ending = pushed.files[0].partition("-of-")[2].partition(".")[2] if pushed.files else "*"
        patterns[split] = [f"{folder}/{split}-*.{ending}"]
    files = [{"split": split, "path": paths[0] if len(paths) == 1 else paths} for split, paths in patterns.items()]
    listed = [one for one in front.get("configs") or () if isinstance(one, dict)]
    mine: dict[str, Any] = next((one for one in listed if one.get("config_name") == config), {})
    kept = {key: value for key, value in mine.items() if key != "data_dir"}  # the patterns have it
    if name != "csv" or not any(split not in splits for split in known):  # options such as `sep` are of old files
        kept = {key: value for key, value in kept.items() if key in ("default", "description", "version")}
    others = [one for one in listed if one.get("config_name") != config]
    return [*others, {**kept, "config_name": config, "data_files": files}]


def _info(old: Any, config: str, splits: Mapping[str, PushedSplit]) -> Any:
    """Return `dataset_info` with the splits of a config; without a split, without the config. Several are a list."""
    listed = [one for one in (old if isinstance(old, list) else [old]) if isinstance(one, dict)]
    others = [one for one in listed if one.get("config_name", "default") != config]
    mine: dict[str, Any] = next((one for one in listed if one.get("config_name", "default") == config), {})
    if not splits:
        others = [{"config_name": one.get("config_name", "default"), **one} for one in others]
        return others if len(others) > 1 else others[0] if others else None
    kept = [one for one in mine.get("splits") or () if isinstance(one, dict) and one.get("name") not in splits]
    told = [{"name": name, "num_bytes": one.payload_bytes, "num_examples": one.rows} for name, one in splits.items()]
    download = sum(one.size_bytes for one in splits.values()) + (int(mine.get("download_size") or 0) if kept else 0)
    features = next(iter(splits.values())).features
    info = {
        **({} if config == "default" and not others else {"config_name": config}),
        **({"features": features_as_yaml(features)} if features else {}),
        "splits": [*kept, *told],
        "download_size": download,
        "dataset_size": sum(int(one.get("num_bytes") or 0) for one in [*kept, *told]),
    }
    others = [{"config_name": one.get("config_name", "default"), **one} for one in others]
    return [*others, info] if others else info


def _size(samples: int) -> str:
    return next((name for bound, name in _SIZES if samples < bound), "n>10B")


def features_as_yaml(features: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return features as a card has them: from `{"id": {"dtype": "int64", "_type": "Value"}}`, and nested ones."""
    return [{"name": name, **_feature(feature)} for name, feature in features.items()]


def _feature(told: Any) -> dict[str, Any]:
    if isinstance(told, list):
        return _simple("list", _feature(told[0]))
    kind = told.get("_type")
    rest = {name: value for name, value in told.items() if name != "_type"}
    if not isinstance(kind, str):
        return {"struct": features_as_yaml(told)}
    if kind == "Value":
        return rest
    if kind in _LISTS:
        inner = rest.pop("feature")
        return {**_simple(_LISTS[kind], _feature(inner)), **rest}
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    if not rest:
        return {"dtype": snake}
    if kind == "ClassLabel" and isinstance(rest.get("names"), list):
        rest["names"] = {str(number): name for number, name in enumerate(rest["names"])}
    return {"dtype": {snake: rest}}


def _simple(kind: str, inner: dict[str, Any]) -> dict[str, Any]:
    """Return a list of a feature; without the word that names a plain type, or the fields of a struct."""
    return {kind: next(iter(inner.values())) if [*inner] in (["dtype"], ["struct"]) else inner}


# The text


def _with_block(text: str, repo: str, config: str, block: str) -> str:
    """Return the text of a card with lading's block of a config; one that people wrote without such blocks stays."""
    begin, end = f"{_BLOCK}{config} -->\n", "<!-- /lading -->\n"
    whole = f"{begin}{block}{end}"
    if begin in text and end in text.partition(begin)[2]:
        before, _, rest = text.partition(begin)
        return f"{before}{whole}{rest.partition(end)[2]}"
    if not text.strip():
        return f"# {repo.partition('/')[2]}\n\n{whole}"
    return f"{text.rstrip()}\n\n{whole}" if _BLOCK in text else text


def _counted(text: str, config: str, kept: Sequence[str]) -> tuple[int, str]:
    """Return the number of samples of splits that stay, and their lines in lading's block of a config."""
    block = text.partition(f"{_BLOCK}{config} -->\n")[2].partition("<!-- /lading -->")[0]
    lines = re.findall(r"^(\| (\S+) \| ([\d,]+) \| .*\n)", block, re.MULTILINE)
    found = [(line, int(number.replace(",", ""))) for line, split, number in lines if split in kept]
    return sum(number for _, number in found), "".join(line for line, _ in found)


def _block(repo: str, config: str, folder: str, splits: Mapping[str, PushedSplit], name: str, counted: str) -> str:
    schema = next(iter(splits.values())).schema
    columns = "".join(f"| `{_cell(field.name)}` | {_cell(_type(field))} |\n" for field in schema)
    counts = "".join(
        f"| {split} | {one.samples:,} | {len(one.files):,} | {format_bytes(one.size_bytes)} |\n"
        for split, one in splits.items()
    )
    return (
        f"{'' if config == 'default' else f'## {config}{chr(10)}{chr(10)}'}"
        f"| split | samples | files | size |\n|---|---|---|---|\n{counted}{counts}\n"
        f"| column | type |\n|---|---|\n{columns}\n"
        f"{_loading(repo, config, folder, splits, name)}"
        "Written by [lading](https://pypi.org/project/lading/).\n"
    )


def _type(field: pa.Field) -> str:
    feature = feature_of(field)
    is_named = feature.is_media or feature.is_text or feature.is_json or feature.labels is not None
    return type(feature).__name__ if is_named else str(field.type)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _loading(repo: str, config: str, folder: str, splits: Mapping[str, PushedSplit], name: str) -> str:
    split, pushed = next(iter(splits.items()))
    of_config = "" if config == "default" else f', "{config}"'
    of_lading = "" if config == "default" else f', config="{config}"'
    code = [
        f'import datasets\n\nds = datasets.load_dataset("{repo}"{of_config}, split="{split}")',
        f'import lading\n\nds = lading.open("hf://datasets/{repo}"{of_lading}, split="{split}")',
    ]
    if name == "webdataset":
        base, last = f"https://huggingface.co/datasets/{repo}/resolve/main/{folder}/", len(pushed.files) - 1
        urls = f"{split}-{{00000..{last:05}}}-of-{len(pushed.files):05}.tar"
        code.append(f'import webdataset\n\nds = webdataset.WebDataset("{base}{urls}", shardshuffle=False)')
    return "".join(f"```python\n{each}\n```\n\n" for each in code)
