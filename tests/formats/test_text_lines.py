"""Text files in another encoding than UTF-8."""

from __future__ import annotations

import gzip
import shlex
import subprocess
from pathlib import Path

import pytest

from lading._core.formats.base import ShardFile
from lading._core.formats.csv.format import FORMAT as CSV
from lading._core.formats.format import AnyFormat
from lading._core.formats.jsonl.format import FORMAT as JSONL
from lading._core.storage.local import LocalStore
from lading.errors import DataError

_TEXTS = {"csv": "a,b\n1,é\n", "jsonl": '{"a":"1","b":"é"}\n'}


@pytest.mark.mechanism("a command of advice in a shell")
@pytest.mark.cases(4)
@pytest.mark.parametrize("fmt", [CSV, JSONL], ids=["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("wrap", ["", ".gz"])
def test_another_unicode_encoding_is_an_error_whose_command_converts_it(
    tmp_path: Path, fmt: AnyFormat, encoding: str, wrap: str
) -> None:
    data = _TEXTS[fmt.name].encode(encoding)
    path = tmp_path / f"a b.{fmt.name}{wrap}"
    path.write_bytes(gzip.compress(data) if wrap else data)
    with pytest.raises(DataError, match=r"a b.*the text is UTF-") as caught:
        fmt.open(ShardFile(LocalStore(), str(path)), fmt.read_options({})).num_rows()
    command = (caught.value.advice or "").partition(": ")[2]
    target = Path(shlex.split(command)[-1])
    assert target.suffix == f".{fmt.name}"
    subprocess.run(command, shell=True, check=True)
    rows = fmt.open(ShardFile(LocalStore(), str(target)), fmt.read_options({})).read().to_pylist()
    assert rows == [{"a": "1", "b": "é"}]
