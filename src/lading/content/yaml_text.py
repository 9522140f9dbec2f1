"""Read YAML that others wrote."""

from __future__ import annotations

from typing import Any

from lading.errors import DataError

__all__ = ["parse_yaml"]


def parse_yaml(data: bytes) -> Any:
    """Return a document of YAML as dicts, lists and texts: no scalar has another type, and tags construct nothing.

    Raises:
        DataError: it is invalid YAML.
    """
    import yaml

    try:
        return yaml.load(data, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506 - safe: texts only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DataError("invalid YAML", offset=mark and mark.index, found=" ".join(str(error).split())[:200]) from None
    except RecursionError:
        raise DataError("the YAML is nested too deeply") from None
