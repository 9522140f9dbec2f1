"""Read YAML that others wrote."""

from __future__ import annotations

from typing import Any

from lading.errors import DataError

__all__ = ["parse_yaml"]

_DEPTH = 100


def parse_yaml(data: bytes) -> Any:
    """Return a document of YAML as dicts, lists and texts: no scalar has another type, and tags construct nothing.

    Raises:
        DataError: it is invalid YAML, or nested too deeply.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        depth = 0
        for event in yaml.parse(data, Loader=loader):  # the loader's C code recurses without a limit of its own
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH:
                raise DataError("the YAML is nested too deeply", expected=f"at most {_DEPTH} levels")
        return yaml.load(data, Loader=loader)  # noqa: S506 - safe: texts only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DataError("invalid YAML", offset=mark and mark.index, found=" ".join(str(error).split())[:200]) from None
    except RecursionError:
        raise DataError("the YAML is nested too deeply") from None
