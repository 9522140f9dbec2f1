"""Arrow types by name, and which values of Python they hold exactly."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.types import arrow_type, exact_value, uncut_getter, uncut_values
from lading.errors import Unrepresentable, UsageError

NOON = datetime.fromisoformat("2020-01-01T12:00:00")


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(), pa.float16(), pa.string_view(), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
        pa.timestamp("s", "+05:30"), pa.timestamp("ms", "Europe/Berlin"), pa.decimal128(10, 2), pa.decimal256(70, -3),
        pa.decimal32(5, 1), pa.time64("ns"), pa.duration("ms"), pa.date64(), pa.month_day_nano_interval(),
    ],
)  # fmt: skip
def test_a_type_is_found_by_what_it_prints(kind: pa.DataType) -> None:
    assert arrow_type(str(kind)) == kind


@pytest.mark.parametrize(
    "name",
    [
        "", "int65", "timestamp[us, tz=Nowhere/X]", "timestamp[us, tz=]", "decimal128(99, 2)", "decimal512(3, 2)",
        "decimal128(10, 99999999999)", "list",
    ],
)  # fmt: skip
def test_what_names_no_type_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a type"):
        arrow_type(name)


@pytest.mark.parametrize(
    "name, value, kept",
    [
        ("timestamp[s]", NOON, NOON),
        ("timestamp[us, tz=UTC]", NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)),
        ("timestamp[ns]", np.datetime64(3, "us"), np.datetime64(3000, "ns")),
        ("timestamp[s]", np.datetime64(3000, "ms"), np.datetime64(3, "s")),
        ("timestamp[us]", np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "us")),
        ("timestamp[s]", np.datetime64("NaT"), None),
        ("date32", np.datetime64("2020-01-01"), date(2020, 1, 1)),
        ("duration[ms]", timedelta(milliseconds=3), timedelta(milliseconds=3)),
        ("duration[ms]", np.timedelta64(-3, "s"), np.timedelta64(-3000, "ms")),
        ("time64[us]", time(1, 2, 3, 4), time(1, 2, 3, 4)),
        ("decimal128(3, 1)", 5, Decimal(5)),
        ("month_day_nano_interval", pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 3])),
    ],
)
def test_values_that_are_held(name: str, value: Any, kept: Any) -> None:
    found = exact_value(arrow_type(name), value)
    assert found == kept
    # 5 equals Decimal(5), and a time equals itself in another unit.
    assert (type(found), getattr(found, "dtype", None)) == (type(kept), getattr(kept, "dtype", None))


@pytest.mark.parametrize(
    "name, value",
    [
        ("timestamp[ms]", NOON.replace(microsecond=5)), ("timestamp[us]", NOON.replace(tzinfo=UTC)),
        ("timestamp[us, tz=UTC]", NOON), ("timestamp[us, tz=UTC]", np.datetime64(3, "us")),
        ("timestamp[us, tz=UTC]", NOON.replace(tzinfo=timezone(timedelta(microseconds=7)))),
        ("timestamp[us]", np.datetime64(3, "ns")), ("timestamp[us]", np.timedelta64(3, "us")),
        ("timestamp[ns]", np.datetime64(2**62, "s")), ("timestamp[us]", np.datetime64("2020")),
        ("timestamp[us]", 3), ("timestamp[us]", date(2020, 1, 1)), ("date32", NOON), ("date32", np.datetime64(3, "us")),
        ("date32", np.datetime64(10**9, "D")), ("time32[s]", time(1, 2, 3, 4)), ("time64[us]", time(1, tzinfo=UTC)),
        ("duration[s]", timedelta(microseconds=1)), ("duration[s]", np.timedelta64(3, "ms")), ("duration[s]", 3),
        ("decimal128(3, 1)", 1.5), ("decimal128(3, 1)", True), ("month_day_nano_interval", (1, 2, 3)), ("null", 0),
    ],
)  # fmt: skip
def test_values_that_would_be_cut_or_taken_for_others_are_refused(name: str, value: Any) -> None:
    with pytest.raises(Unrepresentable, match="cannot hold"):
        exact_value(arrow_type(name), value)


FINE = pa.array([1, 2000, None]).cast(pa.time64("ns"))
"""A time that Python does not have, one that it has, and none."""
FINE_ONES = {
    "flat": FINE,
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), FINE.slice(0, 2)),
    "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), FINE),
    "large list view": pa.LargeListViewArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 1, 1]), FINE),
    "struct": pa.StructArray.from_arrays([FINE], ["t"]),
    "map": pa.MapArray.from_arrays(pa.array([0, 1, 2, 3]), pa.array(["a", "b", "c"]), FINE),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3]), FINE),
    "union": pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [FINE]),
}
TWO_MICROSECONDS = time(0, 0, 0, 2)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("flat", [TWO_MICROSECONDS, None]),
        ("dictionary", [TWO_MICROSECONDS, None]),
        ("list", [[TWO_MICROSECONDS], [None]]),
        ("large list view", [[TWO_MICROSECONDS], [None]]),
        ("struct", [{"t": TWO_MICROSECONDS}, {"t": None}]),
        ("map", [[("b", TWO_MICROSECONDS)], [("c", None)]]),
        ("runs", [TWO_MICROSECONDS, None]),
        ("union", [TWO_MICROSECONDS, None]),
    ],
)
def test_times_of_a_day_come_whole_or_not_at_all(name: str, expected: list[Any]) -> None:
    column = FINE_ONES[name]
    get = uncut_getter(column)
    assert [get(1), get(2)] == expected
    assert uncut_values(column.slice(1)) == expected
    with pytest.raises(ValueError, match="nanoseconds"):
        get(0)
    with pytest.raises(ValueError, match="nanoseconds"):
        uncut_values(column)
