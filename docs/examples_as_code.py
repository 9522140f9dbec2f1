"""An extension of griffe: the site shows the `Example:` of a docstring as code."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(Example:)\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)


class ExamplesAsCode(griffe.Extension):
    """Put a fence around the lines below `Example:`, before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            fenced = r"**Example:**\n\n```python\n\2\n```\n"
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: found.expand(fenced).replace("\n    ", "\n"), obj.docstring.value
            )
