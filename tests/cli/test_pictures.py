"""Pictures in a terminal: what each protocol sends is decoded by its specification, and compared with the picture."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from lading._core.cli.main import app
from lading._core.cli.pictures import Picture, protocol_of
from tars import tar_of


def drawing(width: int = 60, height: int = 36) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 4, y * 6, (x // 20 + y // 12) % 2 * 200], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def as_bytes(image: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def sent(picture: Picture) -> str:
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, color_system="truecolor", width=100).print(picture, soft_wrap=True)
    return screen.getvalue()


def test_half_blocks_have_the_colours_of_two_pixels() -> None:
    image = drawing()
    expected = image.copy()
    expected.thumbnail((40, 28))
    lines = sent(Picture(as_bytes(image), "blocks")).splitlines()
    rows: list[list[list[int]]] = []
    for line in lines:
        cells = re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m▀", line)
        rows += [[list(map(int, cell[:3])) for cell in cells], [list(map(int, cell[3:])) for cell in cells]]
    assert np.array_equal(np.array(rows), np.asarray(expected))


def test_kitty_gets_a_png_in_chunks() -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 300, 3), np.uint8))
    parts = re.findall(r"\x1b_G(.*?);(.*?)\x1b\\", sent(Picture(as_bytes(noise), "kitty")))
    assert parts[0][0] == "a=T,f=100,m=1"
    assert [head for head, _ in parts[1:]] == ["m=1"] * (len(parts) - 2) + ["m=0"]
    assert max(len(chunk) for _, chunk in parts) <= 4096
    shown = Image.open(io.BytesIO(base64.b64decode("".join(chunk for _, chunk in parts))))
    assert np.array_equal(np.asarray(shown), np.asarray(noise))


def test_iterm_gets_a_png() -> None:
    [(width, height, text)] = re.findall(
        r"\x1b\]1337;File=inline=1;width=(\d+)px;height=(\d+)px;.*?:(.*?)\x07",
        sent(Picture(as_bytes(drawing()), "iterm")),
    )
    shown = Image.open(io.BytesIO(base64.b64decode(text)))
    assert (shown.size, (int(width), int(height))) == ((60, 36), (60, 36))
    assert np.array_equal(np.asarray(shown), np.asarray(drawing()))


def decoded_sixel(text: str) -> NDArray[np.float64]:
    """The picture of a sixel sequence, by DEC STD 070."""
    [(size, body)] = re.findall(r'\x1bPq"1;1;(\d+;\d+)(.*?)\x1b\\', text, re.DOTALL)
    width, height = map(int, size.split(";"))
    pixels, colours = np.full((height + 6, width, 3), -1.0), dict[int, list[float]]()
    x = y = colour = 0
    for number, rgb, repeat, sign in re.findall(r"#(\d+)((?:;\d+)*)|(?:!(\d+))?([?-~$-])", body):
        if number:
            colour = int(number)
            if rgb:
                colours[colour] = [int(part) * 2.55 for part in rgb.split(";")[2:]]
        elif sign == "$":
            x = 0
        elif sign == "-":
            x, y = 0, y + 6
        else:
            last = x + int(repeat or 1)
            for bit in range(6):
                if (ord(sign) - 63) >> bit & 1:
                    pixels[y + bit, x:last] = colours[colour]
            x = last
    return pixels[:height]


def test_sixels_are_the_picture_in_few_colours() -> None:
    found = decoded_sixel(sent(Picture(as_bytes(drawing()), "sixel")))
    expected = np.asarray(drawing().quantize(255).convert("RGB"), np.float64)
    assert found.min() >= 0  # every pixel is set
    assert np.abs(found - expected).max() <= 3


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "I", "F", "CMYK"])
def test_every_mode_is_shown(mode: str) -> None:
    assert "▀" in sent(
        Picture(drawing().convert("RGB").convert("RGBA" if mode == "LA" else "RGB").convert(mode), "blocks")
    )


@pytest.mark.parametrize(
    "data, why",
    [
        (b"no image", "no image that Pillow knows"),
        (as_bytes(drawing(200, 200), "JPEG")[:-1500], "the image is broken"),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\0\0\0\1\0\0\x08\2\0\0\0" + bytes(100),
            "65,536×65,536 pixels are too many",
        ),
    ],
)
def test_what_cannot_be_shown_says_so(data: bytes, why: str) -> None:
    assert f"not shown: {why}" in sent(Picture(data, "blocks")).replace("\n", " ")


@pytest.mark.parametrize(
    "environment, protocol",
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, "blocks"),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "iTerm.app"}, "blocks"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, "blocks"),
        ({}, "blocks"),
    ],
)
def test_the_terminal_is_known_by_its_environment(environment: dict[str, str], protocol: str) -> None:
    assert protocol_of(environment) == protocol


def test_head_shows_pictures_where_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "s.tar"
    path.write_bytes(tar_of(("0.jpg", as_bytes(drawing(), "JPEG")), ("1.jpg", b"broken")))

    def shown(*words: str) -> str:
        return CliRunner().invoke(app, ["head", str(path), *words], prog_name="lading").output

    assert "\x1b" not in shown("--images")  # no terminal
    forced = shown("--image-protocol", "kitty")
    assert forced.count("\x1b_Ga=T") == 1
    assert "not shown: no image that Pillow knows" in forced
    assert "jpeg 60×36" in forced
    assert "\x1b" not in shown("--images", "--json")
