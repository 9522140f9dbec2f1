"""The process that decodes bytes of a dataset for the page: pictures to thumbnails, sounds to waveforms, arrays.

`python -m lading._core.view.drawing` reads requests from standard input, and writes answers to standard output. Each is
a line of JSON, and bytes behind it. What decoders do with hostile bytes stays in this process: its memory is limited,
and the other side ends it where it takes too long.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from lading._core.features.images import orientation_of, turned
from lading._core.processes.child_process import end_with_parent, leave_signals

__all__ = ["ANSWERS", "main"]

MEMORY_BYTES = 3 << 30
_MOST_PIXELS = 200_000_000
_PEAKS = 600


class _Refused(Exception):
    """Bytes that are not decoded; the text says why."""


def _thumbnail(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """A picture whose longer side has at most so many pixels, upright."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the check below has words of its own
    with Image.open(io.BytesIO(data)) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise _Refused(f"{image.width:,}×{image.height:,} pixels are not decoded")
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
    """The loudest value of each of so many equal parts of a sound, from 0 to 1."""
    import numpy as np
    import soundfile

    count = min(size, _PEAKS)
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        part = max(1, -(-sound.frames // count))
        peaks = [float(np.abs(block).max(initial=0)) for block in sound.blocks(part, dtype="float32")]
        return {"peaks": [round(min(peak, 1.0), 3) for peak in peaks], "seconds": sound.frames / sound.samplerate}, b""


def _array(data: bytes, size: int) -> tuple[dict[str, Any], bytes]:
    """Type, shape and range of a NumPy file; as a picture where it has two dimensions, or three of pixels."""
    import numpy as np
    from PIL import Image

    values = np.load(io.BytesIO(data), allow_pickle=False)
    facts: dict[str, Any] = {"dtype": str(values.dtype), "shape": list(values.shape)}
    if not values.size or values.dtype.kind not in "biuf":
        return facts, b""
    facts |= {"min": str(values.min()), "max": str(values.max()), "first": [str(v) for v in values.ravel()[:16]]}
    is_plane = values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (1, 3, 4))  # noqa: PLR2004 - height, width, channels
    if not is_plane or values.size > _MOST_PIXELS:
        return facts, b""
    pixels = values if values.dtype == np.uint8 else _levels(values)
    image = Image.fromarray(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)  # noqa: PLR2004 - as above
    image.thumbnail((size, size))
    made = io.BytesIO()
    image.save(made, "PNG")
    return {**facts, "mime": "image/png"}, made.getvalue()


ANSWERS: Mapping[str, Callable[[bytes, int], tuple[dict[str, Any], bytes]]] = {
    "thumbnail": _thumbnail,
    "waveform": _waveform,
    "array": _array,
}
"""What the process makes of bytes, given a size: facts, and the bytes of a picture."""


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while line := requests.readline():
        asked = json.loads(line)
        data = requests.read(asked["bytes"])
        try:
            facts, made = ANSWERS[asked["what"]](data, asked["size"])
        except _Refused as refused:
            facts, made = {"error": str(refused)}, b""
        except MemoryError:
            facts, made = {"error": f"it takes more than {MEMORY_BYTES >> 30} GB of memory to decode"}, b""
        except Exception as error:  # noqa: BLE001 - decoders raise whatever broken bytes lead them to
            facts, made = {"error": f"{type(error).__name__}: {error}"[:500]}, b""
        answers.write(json.dumps({**facts, "bytes": len(made)}).encode() + b"\n" + made)
        answers.flush()


if __name__ == "__main__":
    end_with_parent()
    leave_signals()
    _limit_memory()
    main(sys.stdin.buffer, sys.stdout.buffer)
