"""Text as gzip members. Expected values come from Python's gzip."""

import base64
import gzip
import zlib

import numpy as np
import pytest

from lading._core.codecs import pack_text

_RANDOM = np.random.default_rng(0).bytes(90_000)
_TEXTS = {
    "nothing": b"",
    "one line": b"a line\n",
    "many lines": b"".join(b'{"text": "line %d of many"}\n' % i for i in range(5000)),
    "base64": b'{"jpg": "' + base64.b64encode(_RANDOM) + b'"}\n',
    "a long line that repeats itself": b'{"text": "' + b"the same words again and again " * 4000 + b'"}\n',
}


@pytest.mark.parametrize("level", [None, 0, 1, 9])
@pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS)
def test_text_is_one_member(text: bytes, level: int | None) -> None:
    packed = pack_text(text, level)
    stream = zlib.decompressobj(31)
    assert stream.decompress(packed) == text
    assert (stream.eof, stream.unused_data) == (True, b"")
    assert gzip.decompress(packed) == text


@pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS)
def test_no_text_becomes_larger_than_by_the_usual_way(text: bytes) -> None:
    assert len(pack_text(text)) <= len(gzip.compress(text, 6, mtime=0))
