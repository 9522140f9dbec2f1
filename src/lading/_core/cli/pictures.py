"""Pictures in a terminal: by the protocols of kitty, iTerm2 and sixel where the terminal has one, else as half blocks.

Source: kitty's graphics protocol (transmission of PNG in chunks of 4,096 bytes, `a=T,f=100`); iTerm2's inline images
(OSC 1337); DEC STD 070 (sixel).
"""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lading._core.content.image import image_info

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["PROTOCOLS", "Picture", "protocol_of"]

PROTOCOLS = ("kitty", "iterm", "sixel", "blocks")
"""Ways to show a picture; a terminal that has none of the first three shows coloured half blocks."""

_COLUMNS, _LINES = 40, 14
"""Most cells of a picture. A cell is about twice as high as wide."""

_CELL_WIDTH, _CELL_HEIGHT = 10, 20
"""Pixels of a cell, about."""

_MOST_PIXELS = 100_000_000
_CHUNK_CHARS = 4096
_SIXEL_COLOURS, _SIXEL_LINES, _SIXEL_REPEAT = 255, 6, 3
_INDENT = 2

_KITTY_TERMS, _SIXEL_TERMS = ("xterm-kitty", "xterm-ghostty"), ("foot", "mlterm", "contour", "yaft")
_ITERM_PROGRAMS, _SIXEL_PROGRAMS = ("iTerm.app", "WezTerm"), ("mintty",)


def protocol_of(environment: Mapping[str, str] = os.environ) -> str:
    """Return the protocol of the terminal that a program with this environment runs in.

    Inside tmux and screen it is `blocks`: they pass pictures only where they are told to.
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or term.startswith(("screen", "tmux")):
        return "blocks"
    if term.startswith(_KITTY_TERMS) or environment.get("KITTY_WINDOW_ID"):
        return "kitty"
    if program in _ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if term.startswith(_SIXEL_TERMS) or program in _SIXEL_PROGRAMS:
        return "sixel"
    return "blocks"


class Picture:
    """A small picture; a line that says why where it cannot be shown.

    Args:
        data: an image file, or an image of Pillow's.
        protocol: one of `PROTOCOLS`.
    """

    no_wrap = True  # a sequence has no width

    def __init__(self, data: Any, protocol: str) -> None:
        self._protocol = protocol
        self._image, self._problem = _small(data, blocks=protocol == "blocks")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        if self._image is None:
            yield Text(f"{' ' * _INDENT}{self._problem}", "red")
            return
        if self._protocol == "blocks":
            yield from _blocks(self._image)
            return
        yield Segment(" " * _INDENT)
        yield Segment(_SEQUENCES[self._protocol](self._image))
        yield Segment("\n")


def _small(data: Any, *, blocks: bool) -> tuple[Any, str]:
    """The picture in the size in which it is shown; or None, and the reason."""
    from PIL import Image, UnidentifiedImageError

    info = image_info(data) if isinstance(data, bytes) else None
    if info is not None and info.width * info.height > _MOST_PIXELS:
        return None, f"not shown: {info.width:,}×{info.height:,} pixels are too many"
    size = (_COLUMNS, 2 * _LINES) if blocks else (_COLUMNS * _CELL_WIDTH, _LINES * _CELL_HEIGHT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats, about metadata that nobody sees here
        try:
            image = Image.open(io.BytesIO(data)) if isinstance(data, bytes) else data
            if isinstance(data, bytes):
                image.draft("RGB", (2 * size[0], 2 * size[1]))
            image = _on_black(image)
            image.thumbnail(size)
        except UnidentifiedImageError:
            return None, "not shown: no image that Pillow knows"
        except Exception as error:  # noqa: BLE001 - decoders of broken files raise anything
            return None, f"not shown: the image is broken ({type(error).__name__})"
    return image, ""


def _on_black(image: Any) -> Any:
    from PIL import Image

    if image.mode in ("I", "F", "I;16", "I;16B", "I;16L"):  # a depth map: from its darkest to its lightest value
        values = np.asarray(image, np.float64)
        low, high = float(values.min()), float(values.max())
        return Image.fromarray(((values - low) * (255 / ((high - low) or 1))).astype(np.uint8)).convert("RGB")
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    whole = Image.new("RGBA", image.size, (0, 0, 0, 255))
    whole.alpha_composite(image)
    return whole.convert("RGB")


def _blocks(image: Any) -> Iterator[Any]:
    """Lines of `▀`: its colour is that of the upper pixel, the background that of the lower one."""
    from rich.color import Color
    from rich.segment import Segment
    from rich.style import Style

    pixels = np.asarray(image)
    for y in range(0, len(pixels), 2):
        yield Segment(" " * _INDENT)
        lower = pixels[y + 1] if y + 1 < len(pixels) else None
        for x, upper in enumerate(pixels[y].tolist()):
            below = None if lower is None else Color.from_rgb(*lower[x].tolist())
            yield Segment("▀", Style(color=Color.from_rgb(*upper), bgcolor=below))
        yield Segment("\n")


def _png(image: Any) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _kitty(image: Any) -> str:
    text = _png(image)
    chunks = [text[i : i + _CHUNK_CHARS] for i in range(0, len(text), _CHUNK_CHARS)]
    parts = []
    for number, chunk in enumerate(chunks):
        head = "a=T,f=100," if number == 0 else ""
        parts.append(f"\x1b_G{head}m={int(number + 1 < len(chunks))};{chunk}\x1b\\")
    return "".join(parts)


def _iterm(image: Any) -> str:
    text = _png(image)
    return f"\x1b]1337;File=inline=1;width={image.width}px;height={image.height}px;preserveAspectRatio=1:{text}\x07"


def _sixel(image: Any) -> str:
    reduced = image.quantize(_SIXEL_COLOURS)
    numbers = np.asarray(reduced)
    palette = np.array(reduced.getpalette(), np.int64).reshape(-1, 3)
    parts = [f'\x1bPq"1;1;{image.width};{image.height}']
    used = np.unique(numbers).tolist()
    for number in used:
        red, green, blue = (palette[number] * 100 // 255).tolist()
        parts.append(f"#{number};2;{red};{green};{blue}")
    bands = (numbers[top : top + _SIXEL_LINES] for top in range(0, len(numbers), _SIXEL_LINES))
    parts += ["$".join(_sixel_lines(band)) + "-" for band in bands]
    return "".join(parts) + "\x1b\\"


def _sixel_lines(band: NDArray[Any]) -> Iterator[str]:
    """Six lines of pixels, once for each colour in them."""
    weights = (1 << np.arange(len(band)))[:, None]
    for number in np.unique(band).tolist():
        marks = ((band == number) * weights).sum(axis=0)
        firsts = np.flatnonzero(np.diff(marks, prepend=-1))
        lengths = np.diff(firsts, append=len(marks))
        line = []
        for mark, length in zip(marks[firsts].tolist(), lengths.tolist(), strict=True):
            sign = chr(63 + mark)
            line.append(f"!{length}{sign}" if length > _SIXEL_REPEAT else sign * length)
        yield f"#{number}{''.join(line)}"


_SEQUENCES = {"kitty": _kitty, "iterm": _iterm, "sixel": _sixel}
