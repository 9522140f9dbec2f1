"""The process that decodes bytes of a dataset for the page: pictures to thumbnails, sounds to waveforms, arrays.

`python -m lading._core.view.drawing` reads requests from standard input, and writes answers to standard output. Each is
a line of JSON, and bytes behind it. What decoders do with hostile bytes stays in this process: it can only compute, in
limited memory, and the other side ends it where it takes too long.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

from lading._core.features.images import orientation_of, turned
from lading._core.processes.child_process import end_with_parent, leave_signals
from lading._core.view.confined import confine

__all__ = ["ANSWERS", "main"]

MEMORY_BYTES = 3 << 30
_MOST_PIXELS = 200_000_000
_PEAKS = 600
_BLOCK_FRAMES, _MOST_FRAMES = 1 << 16, 40_000_000
_FIRST_VALUES, _MOST_ARRAYS = 16, 100
_PLUGINS = ("Jpeg", "Mpo", "Png", "Gif", "WebP", "Bmp", "Tiff", "Avif", "Ppm", "Ico", "Tga", "Jpeg2K")
"""Of Pillow: those that decode themselves. For PostScript it would start a program."""
_OBJECT = re.compile("<_io.BytesIO object at 0x[0-9a-f]+>")
_EXTRAS = {"PIL": "images", "soundfile": "audio", "av": "video"}
_MOST_PICTURES = 1_000


class _Refused(Exception):
    """Bytes that are not decoded; the text says why."""


@cache
def _formats() -> list[str]:
    """The formats that are decoded, as Pillow names them."""
    from PIL import Image

    for name in _PLUGINS:
        with suppress(ImportError):
            import_module(f"PIL.{name}ImagePlugin")
    return [*Image.OPEN]


def _thumbnail(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """A picture whose longer side has at most so many pixels, upright."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the check below has words of its own
    with Image.open(io.BytesIO(data), formats=_formats()) as image:
        _refuse_above(image.width, image.height)
        image.draft("RGB", (2 * size, 2 * size))
        orientation = orientation_of(image)
        clear = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        image.thumbnail((size, size))
        upright = turned(image, orientation)
        made = io.BytesIO()
        if clear:
            upright.convert("RGBA").save(made, "PNG")
        else:
            _in_eight_bits(upright).convert("RGB").save(made, "JPEG", quality=80)
    return {"mime": "image/png" if clear else "image/jpeg"}, made.getvalue()


def _refuse_above(width: int, height: int) -> None:
    if width * height > _MOST_PIXELS:
        raise _Refused(f"{width:,}×{height:,} pixels are not decoded, only {_MOST_PIXELS:,}")


def _picture(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:  # noqa: ARG001 - as all answers
    """Width, height and frames of a picture whose pixels were decoded, all of them."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the check below has words of its own
    with Image.open(io.BytesIO(data), formats=_formats()) as image:
        _refuse_above(image.width, image.height)
        frames = getattr(image, "n_frames", 1)
        for frame in range(min(frames, _MOST_PICTURES)):
            image.seek(frame)
            image.load()
        return {"width": image.width, "height": image.height, "frames": frames}, b""


def _in_eight_bits(image: Any) -> Any:
    """An image of 16 bits or floats with its range of values as 256 levels of grey: `convert` would cut them off."""
    if not image.mode.startswith(("I", "F")):
        return image
    import numpy as np
    from PIL import Image

    return Image.fromarray(_levels(np.asarray(image)))


def _levels(values: Any) -> Any:
    import numpy as np

    values = np.nan_to_num(np.asarray(values, np.float64))
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    return ((values - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)


def _waveform(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """The loudest value of each of so many equal parts of a sound, from 0 to 1; of a long sound, of a piece of each."""
    import numpy as np
    import soundfile

    count = min(size, _PEAKS)
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        frames, part = sound.frames, max(1, -(-sound.frames // count))
        peaks = np.zeros(count, np.float32)
        if frames > _MOST_FRAMES:
            for place in range(count):
                sound.seek(place * part)
                peaks[place] = np.abs(sound.read(_BLOCK_FRAMES >> 3, dtype="float32")).max(initial=0)
        else:
            at = 0
            for block in sound.blocks(_BLOCK_FRAMES, dtype="float32", always_2d=True):
                place = np.minimum((at + np.arange(len(block))) // part, count - 1)
                np.maximum.at(peaks, place, np.abs(block).max(axis=1))
                at += len(block)
        peaks = np.nan_to_num(peaks[: -(-frames // part)], posinf=1).clip(0, 1)
        return {"peaks": [round(peak, 3) for peak in peaks.tolist()], "seconds": frames / sound.samplerate}, b""


def _array(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """Type, shape and range of a NumPy file; as a picture where it has two dimensions, or three of pixels."""
    import numpy as np
    from PIL import Image

    if data.startswith(b"PK"):
        return {"arrays": _arrays(data)}, b""
    dtype, shape, left = _array_header(io.BytesIO(data), len(data))
    facts: dict[str, Any] = {"dtype": str(dtype), "shape": list(shape)}
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > left:
        why = "objects are not read" if dtype.hasobject else f"{math.prod(shape):,} values are not in {left:,} bytes"
        return {**facts, "why": why}, b""
    values = np.load(io.BytesIO(data), allow_pickle=False)
    if not values.size or values.dtype.kind not in "biuf":
        return facts, b""
    first = [str(value) for value in values.ravel()[:_FIRST_VALUES]]
    facts |= {"min": str(values.min()), "max": str(values.max()), "first": first}
    is_plane = values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (1, 3, 4))  # noqa: PLR2004 - height, width, channels
    if not is_plane or values.size > _MOST_PIXELS:
        return facts, b""
    pixels = values if values.dtype == np.uint8 else _levels(values)
    image = Image.fromarray(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)  # noqa: PLR2004 - as above
    image.thumbnail((size, size))
    made = io.BytesIO()
    image.save(made, "PNG")
    return {**facts, "mime": "image/png"}, made.getvalue()


def _array_header(file: Any, size: int) -> tuple[Any, tuple[int, ...], int]:
    """Type and shape that a NumPy file declares, and the number of bytes behind its header."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return dtype, shape, size - file.tell()


def _arrays(data: bytes) -> list[dict[str, Any]]:
    """Name, type and shape of the first arrays of an NPZ file, as their headers declare them."""
    from zipfile import ZipFile

    found = []
    with ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist()[:_MOST_ARRAYS]:
            with archive.open(info) as file:
                dtype, shape, _ = _array_header(file, info.file_size)
            found.append({"name": info.filename.removesuffix(".npy"), "dtype": str(dtype), "shape": list(shape)})
    return found


def _poster(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """A frame of a video, a tenth behind its beginning, as a picture."""
    import av
    from PIL import Image

    with av.open(io.BytesIO(data), "r") as video:
        stream = next(iter(video.streams.video), None)
        if stream is None:
            raise _Refused("the file has no video")
        _refuse_above(stream.codec_context.width, stream.codec_context.height)
        if stream.duration:
            video.seek((stream.start_time or 0) + stream.duration // 10, stream=stream)
        frame = next(video.decode(stream), None)
        if frame is None:
            raise _Refused("the video has no frame")
        image = Image.fromarray(frame.to_ndarray(format="rgb24"))
        image.thumbnail((size, size))
        made = io.BytesIO()
        image.rotate(frame.rotation, expand=True).save(made, "JPEG", quality=80)
    return {"mime": "image/jpeg"}, made.getvalue()


ANSWERS: Mapping[str, Callable[[bytes, int], tuple[dict[str, Any], bytes]]] = {
    "thumbnail": _thumbnail,
    "picture": _picture,
    "waveform": _waveform,
    "array": _array,
    "poster": _poster,
}
"""What the process makes of bytes, given a size: facts, and the bytes of a picture."""


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while line := requests.readline():
        asked = json.loads(line)
        data = requests.read(asked["bytes"])
        try:
            facts, made = ANSWERS[asked["what"]](data, asked["size"])
        except _Refused as refused:
            facts, made = {"error": str(refused)}, b""
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0], "all")
            facts, made = {"error": f"{error.name} is not installed. Run: pip install 'lading[{extra}]'"}, b""
        except MemoryError:
            facts, made = {"error": f"it takes more than {MEMORY_BYTES >> 30} GB of memory to decode"}, b""
        except Exception as error:  # noqa: BLE001 - decoders raise whatever broken bytes lead them to
            text = _OBJECT.sub("the bytes", f"{type(error).__name__}: {error}")
            facts, made = {"error": text[:500]}, b""
        answers.write(json.dumps({**facts, "bytes": len(made)}).encode() + b"\n" + made)
        answers.flush()


if __name__ == "__main__":
    end_with_parent()
    leave_signals()
    with suppress(ImportError, OSError):
        import soundfile  # noqa: F401 - it may start a program to find its library
    with suppress(ImportError):
        _formats()
    confine(MEMORY_BYTES)
    main(sys.stdin.buffer, sys.stdout.buffer)
