"""Errors are also the builtins that other libraries raise at the same place."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from lading import errors
from lading._core.codecs.snappy_ import pack_snappy


@pytest.mark.parametrize(
    "error, builtin",
    [
        (errors.DataError, ValueError),  # json, streaming (hashes, versions), tarfile's callers, pyarrow's ArrowInvalid
        (errors.SchemaMismatch, ValueError),  # stable-datasets, validate_sharded_cache
        (errors.Unrepresentable, ValueError),  # NeMo Curator, modalities of a tar
        (errors.SidecarMismatch, ValueError),  # streaming, "Checksum failure"
        (errors.BadReference, RuntimeError),  # NeMo Curator, on_materialize_error="error"
        (errors.UsageError, ValueError),
        (errors.SourceNotFound, FileNotFoundError),
        (errors.DestinationExists, FileExistsError),
        (errors.MissingExtra, ImportError),
        (errors.StoreError, OSError),
        (errors.NotFound, FileNotFoundError),
    ],
)
def test_code_that_catches_the_builtin_of_a_peer_goes_on_working(
    error: type[errors.LadingError], builtin: type[Exception]
) -> None:
    assert issubclass(error, builtin)
    again = pickle.loads(pickle.dumps(error("wrong", file="a.tar", row=3, advice="Look.")))
    assert (type(again), again.file, again.row, str(again)) == (error, "a.tar", 3, "a.tar row 3: wrong. Look.")


def test_data_control_no_terminal() -> None:
    error = errors.UsageError("no such column", file="x\u2066.tar", found="a\x1b[31m\u202eb")
    assert str(error) == r"x\u2066.tar: no such column; found a\x1b[31m\u202eb"


def test_a_package_that_is_there_and_broken_is_not_told_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cramjam", raising=False)
    (tmp_path / "cramjam.py").write_text("import no_such_module")
    with pytest.raises(
        errors.MissingExtra, match="cannot be imported; found No module named 'no_such_module'"
    ) as caught:
        pack_snappy(b"x")
    assert "pip install" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(
        errors.MissingExtra, match=r"cramjam, which is not installed. Run: pip install 'lading\[snappy\]'"
    ):
        pack_snappy(b"x")
