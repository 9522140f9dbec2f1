"""What processes say to each other arrives as it was said."""

from __future__ import annotations

import os
import threading
import warnings
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lading import errors
from lading._core.arrow.references import RefType, ref_field
from lading._core.dataset.shards.shards import ReadPlan
from lading._core.dataset.steps.filter_steps import Where
from lading._core.dataset.steps.map_step import Map
from lading._core.dataset.steps.order_steps import Limit
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.schemas import Schemas
from lading._core.jobs.engine.messages import (
    decode_error,
    decode_message,
    decode_schema,
    encode_error,
    encode_message,
    encode_schema,
    encode_warning,
    read_frame,
    repeat_warning,
    write_frame,
)
from lading.errors import CorruptShard, LadingError, StoreError, UsageError
from lading.options import InterleavedOptions, WriteOptions


@pytest.mark.parametrize("name", [n for n in errors.__all__ if isinstance(getattr(errors, n), type)])
def test_every_error_of_ours_crosses_with_all_it_knows(name: str) -> None:
    kind: type[LadingError] = getattr(errors, name)
    error = kind("it broke", file="a.tar", offset=5, row=1 << 70, sample="k", expected=pa.int8(), found="\udc80")
    error.advice = "Mend it."
    told = decode_error(encode_error(error))
    assert type(told) is kind
    assert str(told) == str(error).replace("\udc80", "\\udc80")
    assert isinstance(told, LadingError)
    assert told.exit_status == error.exit_status
    assert "it broke" in told.__notes__[0]


def test_the_number_of_a_store_error_crosses() -> None:
    error = StoreError("no space", file="x")
    error.errno = 28
    told = decode_error(encode_error(error))
    assert isinstance(told, StoreError)
    assert told.errno == 28


class _Own(CorruptShard):
    """An error that only this process knows."""


class _Odd(UnicodeError):
    """One of Python's, by descent."""


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (_Own("odd", file="f"), CorruptShard, "f: odd"),
        (MemoryError("much"), MemoryError, "much"),
        (FileNotFoundError(2, "gone", "/x"), FileNotFoundError, "[Errno 2] gone: '/x'"),
        (OSError("so"), OSError, "so"),
        (_Odd("what"), UnicodeError, "what"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), RuntimeError, "UnicodeDecodeError"),
        (pa.ArrowInvalid("no"), ValueError, "no"),
    ],
)
def test_errors_of_others_cross_as_the_nearest_that_is_known(
    error: Exception, kind: type[Exception], text: str
) -> None:
    told = decode_error(encode_error(error))
    assert type(told) is kind
    assert text in str(told)


def test_warnings_are_given_again_once_a_place() -> None:
    registry: dict[Any, int] = {}
    told = encode_warning("look \udc80", RuntimeWarning, "f.py", 3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(2):
            repeat_warning(told, registry)
    assert [(str(w.message), w.category, w.filename, w.lineno) for w in seen] == [
        ("look \\udc80", RuntimeWarning, "f.py", 3)
    ]


def test_references_cross_and_what_is_only_called_so_stays_what_it_is() -> None:
    called = pa.field("b", RefType().storage_type, metadata={"ARROW:extension:name": "lading.ref"})
    schema = pa.schema([("a", pa.int8()), called, ("c", RefType()), ("d", RefType())])
    told = decode_schema(encode_schema(schema))
    assert told is not None
    assert told.types == schema.types
    assert told.names == schema.names


def test_messages_and_tables_through_a_pipe() -> None:
    out, into = os.pipe()
    table = pa.table({"a": [1, 2], "b": pa.array([None, None], RefType())})
    write_frame(into, {"x": "ü\n"}, b"", encode_message({"z": 2}, [None, table]))
    write_frame(into, {"y": 1})
    os.write(into, b'{"cut": ')
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        first = read_frame(pipe)
        assert first is not None
        assert first[0] == {"x": "ü\n"}
        assert first[1][0] == b""
        told, tables = decode_message(first[1][1])
        assert told == {"z": 2}
        assert tables[0] is None
        assert tables[1].equals(table)
        assert read_frame(pipe) == ({"y": 1}, [])
        assert read_frame(pipe) is None


PLAIN = JobPlan("a", ReadPlan("samples"), WriteOptions(format="b"))


def test_a_conversion_crosses_whole() -> None:
    schema = pa.schema(
        [pa.field("a", pa.string(), metadata={"k": "v"}), ref_field(pa.field("b", RefType()))], {"m": "n"}
    )
    interleaved = InterleavedOptions(fields=("a",), sample_id_field=None)
    how = JobPlan(
        "webdataset", ReadPlan("interleaved", {"regroup": True}, interleaved, ("root",)),
        WriteOptions(format="parquet", options={"compression_level": 3}, checksums="files", max_batch_bytes=5),
        (Where("a == 'b'"), Limit(3)), Schemas(schema, {"a": "image"}, ("a",), columns=("a", "b")),
        digests=True, index_file="i.json",
    )  # fmt: skip
    found = JobPlan.decode(how.encode())
    assert found == how
    assert found.schemas.schema.equals(schema, check_metadata=True)
    assert JobPlan.decode(PLAIN.encode()) == PLAIN


@pytest.mark.parametrize("value", [pc.field("a") > 1, b"x", {1, 2}, RefType()])
def test_an_option_of_any_type_crosses(value: object) -> None:
    how = replace(PLAIN, read=ReadPlan("samples", {"filter": value}))
    assert str(JobPlan.decode(how.encode()).read.format_options["filter"]) == str(value)


def test_a_function_crosses_whatever_it_is_made_of() -> None:
    least = 3
    [step] = JobPlan.decode(replace(PLAIN, steps=(Map(lambda number: number + least),)).encode()).steps
    assert isinstance(step, Map)
    assert step.function(4) == 7  # type: ignore[arg-type]


def test_a_value_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"map=<function.*workers=1"):
        replace(PLAIN, steps=(Map(lambda batch: lock and batch),)).encode()
    with pytest.raises(UsageError, match=r"filter=<unlocked.*workers=1"):
        replace(PLAIN, read=ReadPlan("samples", {"filter": lock})).encode()
