"""Pictures, arrays, sounds and videos that ask for much more than they hold."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from sound_and_video import sound_file, video_file

__all__ = ["CASES", "png"]


def png(width: int, height: int, pixels: bytes = b"", more: bytes = b"") -> bytes:
    """Return a PNG of 8-bit RGB with these deflated pixels, whether or not they are as many, and more chunks."""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _zeros(count: int) -> bytes:
    packer = zlib.compressobj(1)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]
    return b"".join([*parts, packer.compress(bytes(count & 0xFFFFF)), packer.flush()])


def _saved(kind: str) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (64, 64)).save(made, kind)
    return made.getvalue()


def _npy(shape: str, dtype: str = "<f8") -> bytes:
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def _huge_jpeg() -> bytes:
    made = bytearray(_saved("JPEG"))
    at = made.index(b"\xff\xc0") + 5
    made[at : at + 4] = struct.pack(">HH", 65535, 65535)
    return bytes(made)


def _long_gif() -> bytes:
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6) + frame * 100_000 + b";"


def _large_npz() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        file.write(_npy("(67108864,)"))
        for _ in range(512):
            file.write(bytes(1 << 20))
    return made.getvalue()


def _long_flac() -> bytes:
    made = bytearray(sound_file(np.zeros((16_000, 1))))
    made[21] |= 0x0F
    made[22:26] = b"\xff" * 4
    return bytes(made)


def _long_wav() -> bytes:
    form = struct.pack("<IHHIIHH", 16, 1, 1, 1000, 2000, 2, 16)
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + form + b"data\xff\xff\xff\xff" + bytes(1000)


def _long_mp4() -> bytes:
    made = bytearray(video_file(9))
    at = made.index(b"stsz") + 4
    made[at : at + 12] = bytes(8) + b"\x7f\xff\xff\xff"
    return bytes(made)


_BOXES = b"\0\0\0\x18ftypisom\0\0\0\0isomiso2" + b"\0\0\0\x08moov" * 200_000
_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{} loop\n"
_PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"

CASES: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "900-megapixel-png": ("thumbnail", lambda: png(30_000, 30_000)),
    "deflate-bomb-png": ("thumbnail", lambda: png(14_000, 14_000, _zeros(14_000 * 42_001))),
    "text-bomb-png": ("thumbnail", lambda: png(8, 8, b"", _chunk(b"zTXt", b"k\0\0" + _zeros(256 << 20)) * 3)),
    "profile-bomb-png": ("thumbnail", lambda: png(8, 8, b"", _chunk(b"iCCP", b"k\0\0" + _zeros(256 << 20)))),
    "65535-jpeg": ("thumbnail", _huge_jpeg),
    "100000-frames-gif": ("thumbnail", _long_gif),
    "endless-postscript": ("thumbnail", lambda: _POSTSCRIPT),
    "junk": ("thumbnail", lambda: b"junk" * 99),
    "npy-of-2**40": ("array", lambda: _npy("(1099511627776,)")),
    "npy-of-2**124": ("array", lambda: _npy("(4611686018427387904, 4611686018427387904)")),
    "npy-of-objects": ("array", lambda: _npy("(3,)", "|O") + b"cos\nsystem\n(S'true'\ntR."),
    "npy-of-negative-shape": ("array", lambda: _npy("(-5, 3)")),
    "npz-bomb": ("array", _large_npz),
    "absurd-flac": ("waveform", _long_flac),
    "absurd-wav": ("waveform", _long_wav),
    "absurd-mp4": ("poster", _long_mp4),
    "200000-boxes-mp4": ("poster", lambda: _BOXES),
    "playlist": ("poster", lambda: _PLAYLIST),
}
"""What the page makes of each file, and the file."""
