r"""Conditions on rows, as `--where` takes them.

    modality == 'image' and position < 5
    language in ('en', 'de') and not draft
    score is not null and width / height > 1.5
    startswith(source_url, 'https://') or matches(key, r'^a\d+')

| written | means |
|---|---|
| `and`, `or`, `not`, `( )` | of conditions; lower case |
| `== != < <= > >=` | compare; also in a chain, `1 <= position < 5` |
| `in`, `not in` | one of a list of values: `x in ('a', 'b')`; an item of a column of lists: `'cat' in json.tags` |
| `is null`, `is not null` | whether there is a value, of any type |
| `'text'`, `5`, `0.5`, `true`, `false` | values; `true`, `false` and `null` (or `None`) in any case |
| `name` | a column; by itself a condition if it is bool; Python's names, in Unicode's form NFKC |
| `name.part`, `name['any name']`, `name[0]` | a field inside a column, a value of a list; `[-1]` is the last |
| `name[] == 'a'`, `name[] in ('a', 'b')` | an item of a list is the value, or one of them |
| `col['any name']` | a column whose name is not a plain word, such as `col['seg.png']` |
| `+ - * /` | on numbers |
| `len(x)` | characters of a text, bytes of a binary value or reference, values of a list |
| `lower(x)`, `upper(x)` | the text in one case, a character for a character (ß stays) |
| `startswith(x, 'a')`, `endswith(x, 'a')`, `contains(x, 'a')` | about a text |
| `matches(x, r'^a\d+')` | whether the regular expression (RE2) is found anywhere in the text |

A row is kept where the condition is true. As in SQL, comparing or computing with null gives null, `and`, `or` and `not`
follow three-valued logic, and a row whose condition is null is dropped: `score != 1` keeps no row without a score. NaN
is a value, not null; it equals nothing and is neither less nor greater.

Values keep their types: texts are compared with texts (by code point), numbers with numbers, bools with bools. A date
or timestamp is compared with a text, `day >= '2024-01-31'`; it needs a zone (`'2024-01-31T00:00:00Z'`) where the column
has one. So may a decimal be, `price == '1.10'`. Dictionaries count as their values.

Numbers are compared exactly, whatever their types, and never rounded to a float. Only a number with a fraction means
the nearest value of a float column, so that `score == 0.1` finds what was stored as 0.1. `+ - *` of integers are in 64
bits, everything else and `/` in float64, and a division by zero is null. A result that does not fit (an overflow, an
integer beyond 2⁵³ that must become a float) is an error, not a wrong answer.

A condition is parsed by Python's `ast` and read node by node; nothing in it is run.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.references import is_ref, unpack
from lading._core.arrow.views import LIST_TYPES, byte_lengths, is_bytes, is_text, listed_items, present
from lading._core.content.field_paths import FieldPath, Part, Use, Wanted
from lading._core.content.nested import column_values
from lading.errors import UsageError

__all__ = ["MAX_CHARACTERS", "Computed", "Condition", "as_where", "parse_value", "parse_where"]

MAX_CHARACTERS = 10_000
"""A longer condition is refused."""

_MAX_DEPTH = 100
_MAX_BITS = 1023
_DECIMAL128_DIGITS, _DECIMAL256_DIGITS = 38, 76
_MAX_INDEX_BITS = 31
_SHOWN_CHARACTERS = 120
_SHOWN_LITERAL = 50


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows, made by `parse_where` or `as_where`.

    Attributes:
        text: the condition as it was written.
        columns: names of its columns, in order of appearance, each once; empty for a pyarrow expression, which may use
            any column.
        wanted: its columns and fields, and how their values are used.
    """

    text: str
    columns: tuple[str, ...]
    _condition: _Node | pc.Expression = field(repr=False, compare=False)
    wanted: tuple[Wanted, ...] = field(default=(), repr=False, compare=False)

    def mask(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return True for the rows to keep, one value a row; a null condition is False. As `truth` else."""
        return np.asarray(self.truth(batch).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003 - the value

    def truth(self, batch: pa.RecordBatch, values: Mapping[Wanted, pa.Array] | None = None) -> pa.Array:
        """Return true, false or null for each row.

        Args:
            batch: the rows. Only the columns in `columns` are read, and no payload; fields are those of structs.
            values: the values of `wanted`, where they lie elsewhere than in the batch.

        Raises:
            UsageError: a column is missing, its type does not fit the condition, a number overflows, or the length of
                a compressed reference is unknown; names the column, its type and the place in the text.
        """
        try:
            return _evaluate_condition(self._condition, _Rows(batch, values))
        except _Wrong as wrong:
            raise _usage_error(self.text, wrong) from None

    def located(self, error: UsageError, wanted: Wanted) -> UsageError:
        """Return an error about a field with its place in the text."""
        node = None if isinstance(self._condition, pc.Expression) else _node_of(self._condition, wanted)
        at = None if node is None else node.at
        return _usage_error(self.text, _Wrong(error.message, at, error.column, error.advice))

    def compared(self, wanted: Wanted) -> tuple[FieldPath, str, FieldPath] | None:
        """Return the two names and the sign of the comparison that compares a column with another; None without one."""
        if isinstance(self._condition, pc.Expression):
            return None
        for call in _calls(self._condition):
            if call.function in _KERNELS and all(isinstance(each, _Column) for each in call.args):
                left, right = (each.wanted for each in call.args if isinstance(each, _Column))
                if wanted in (left, right):
                    return left.field, call.function, right.field
        return None

    @property
    def texts(self) -> list[tuple[Wanted, str]]:
        """Columns and fields that are compared with a text for equality, and the text."""
        return [] if isinstance(self._condition, pc.Expression) else [*_texts(self._condition)]

    def rejects(self, values: pa.RecordBatch) -> bool:
        """Return whether no row with these values fits, whatever its other columns hold.

        Args:
            values: one row of the columns that are known.
        """
        return _rejects(self._condition, values)


def parse_where(text: str) -> Condition:
    """Parse a condition; the grammar is at the top of this module.

    Raises:
        UsageError: the text is not a condition, too long, or nested too deeply; shows the place in it.
    """
    text = text.strip()
    try:
        condition = _read_condition(_parse(text))
        _refuse_items(condition)
        columns = _columns_of(condition)
    except _Wrong as wrong:
        raise _usage_error(text, wrong) from None
    return Condition(text, columns, condition, tuple(dict.fromkeys(_wanted(condition))))


@dataclass(frozen=True, slots=True)
class Computed:
    """A value of each row, made by `parse_value`.

    Attributes:
        text: as it was written.
        wanted: the columns and fields that it is computed of, and how their values are used.
    """

    text: str
    wanted: tuple[Wanted, ...]
    _node: _Node = field(repr=False, compare=False)

    def of(self, values: Mapping[Wanted, pa.Array]) -> pa.Array:
        """Return the value of each row, null where a value that it is computed of is null.

        Args:
            values: those of `wanted`.

        Raises:
            UsageError: the type of a column does not fit, or a number overflows; names the place in the text.
        """
        try:
            return _evaluate(self._node, _Rows(pa.RecordBatch.from_pylist([]), values))
        except _Wrong as wrong:
            raise _usage_error(self.text, wrong, "text") from None


def parse_value(text: str) -> Computed:
    """Parse what is computed of columns, as conditions write it: `len(txt)`, `jpg.width * jpg.height`.

    Raises:
        UsageError: the text is nothing of this kind, or is a condition; shows the place in it.
    """
    text = text.strip()
    try:
        node = _read_value(_parse(text))
        _refuse_items(node)
    except _Wrong as wrong:
        raise _usage_error(text, wrong, "text") from None
    return Computed(text, tuple(dict.fromkeys(_wanted(node))), node)


def as_where(condition: str | pc.Expression | Condition) -> Condition:
    """Return the condition of a text, or of a pyarrow expression, which keeps pyarrow's own rules for types and nulls.

    Raises:
        UsageError: as `parse_where`, or it is neither.
    """
    if isinstance(condition, Condition):
        return condition
    if isinstance(condition, pc.Expression):
        return Condition(str(condition), (), condition)
    if not isinstance(condition, str):
        raise UsageError("not a condition", expected="a text or a pyarrow expression", found=repr(condition)[:80])
    return parse_where(condition)


# The nodes of a parsed condition.

_Place: TypeAlias = tuple[int, int]
"""Line, from 1, and byte of the UTF-8 of that line, from 0, as `ast` counts."""

_Literal: TypeAlias = bool | int | float | Decimal | str
"""A number with more digits than a float holds is a Decimal."""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    path: tuple[Part, ...]
    at: _Place
    use: Use = "any"
    each: bool = False
    """Whether each item of a list is meant, as in `tags[]`."""

    @property
    def wanted(self) -> Wanted:
        return Wanted(FieldPath(self.name, self.path), self.use)

    def __str__(self) -> str:
        return str(self.wanted.field)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the function with this name in `_FUNCTIONS`; at least one argument comes from a column."""

    function: str
    args: tuple[_Node, ...]
    at: _Place


_Node: TypeAlias = _Column | _Call | _Literal


def _columns_of(condition: _Node) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(_columns(condition)))
    if not columns:
        raise _Wrong("the condition names no column", None)
    return columns


def _columns(node: _Node) -> Iterator[str]:
    return (each.name for each in _column_nodes(node))


def _wanted(node: _Node) -> Iterator[Wanted]:
    return (each.wanted for each in _column_nodes(node))


def _node_of(node: _Node, wanted: Wanted) -> _Column | None:
    return next((each for each in _column_nodes(node) if each.wanted == wanted), None)


def _texts(node: _Node) -> Iterator[tuple[Wanted, str]]:
    if not isinstance(node, _Call):
        return
    if node.function in ("==", "!=", "in"):
        column = next((each for each in node.args if isinstance(each, _Column)), None)
        yield from ((column.wanted, each) for each in node.args if column is not None and isinstance(each, str))
    for each in node.args:
        yield from _texts(each)


def _calls(node: _Node) -> Iterator[_Call]:
    if isinstance(node, _Call):
        yield node
        for arg in node.args:
            yield from _calls(arg)


def _column_nodes(node: _Node) -> Iterator[_Column]:
    if isinstance(node, _Column):
        yield node
    elif isinstance(node, _Call):
        for arg in node.args:
            yield from _column_nodes(arg)


def _used(node: Any, use: Use) -> Any:
    """Return a node that knows how its value is used, if it is a column."""
    return replace(node, use=use) if isinstance(node, _Column) else node


# Errors


class _Wrong(Exception):
    """An error at a place of the text; becomes a UsageError where the whole text is known."""

    def __init__(self, message: str, at: _Place | None, column: str | None = None, advice: str | None = None) -> None:
        super().__init__(message)
        self.message, self.at, self.column, self.advice = message, at, column, advice


def _usage_error(text: str, wrong: _Wrong, what: str = "condition") -> UsageError:
    if wrong.at is None:
        return UsageError(wrong.message, found=repr(text[:_SHOWN_CHARACTERS]))
    lines = _lines(text)
    line, byte = wrong.at
    shown = lines[min(line, len(lines)) - 1]
    at = len(shown.encode("utf-8", "replace")[:byte].decode("utf-8", "ignore"))
    place = f"character {at + 1}" if len(lines) == 1 else f"line {line}, character {at + 1}"
    rest = shown[at : at + _SHOWN_CHARACTERS]
    return UsageError(
        f"{wrong.message} (at {place} of the {what})", column=wrong.column,
        found=ascii(rest) if rest else "its end", advice=wrong.advice,
    )  # fmt: skip


def _lines(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


def _misfit(call: _Call, which: int, value: Any, complaint: str) -> _Wrong:
    """Return the error for an argument that a call does not accept, with its value."""
    node = call.args[which]
    if isinstance(node, _Column):
        return _Wrong(f"{_type_name(value.type)} {complaint}", node.at, str(node))
    function, at = (node.function, node.at) if isinstance(node, _Call) else ("the value", call.at)
    return _Wrong(f"{function!r} gives {_type_name(value.type)}, which {complaint}", at)


def _type_name(kind: pa.DataType) -> str:
    if isinstance(kind, pa.JsonType):
        return "JSON of several kinds"
    return "bytes" if is_ref(kind) else str(kind)


def _shown(literal: _Literal) -> str:
    text = str(literal).lower() if isinstance(literal, bool) else repr(literal)
    text = str(literal) if isinstance(literal, Decimal) else text
    return text if len(text) <= _SHOWN_LITERAL else f"{text[:_SHOWN_LITERAL]}…"


# Parsing


def _parse(text: str) -> ast.expr:
    if not text:
        raise _Wrong("the condition is empty", None)
    if len(text) > MAX_CHARACTERS:
        raise _Wrong(f"the condition has {len(text):,} characters; {MAX_CHARACTERS:,} are allowed", None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of '\d' and the like, whose meaning in a pattern is intended
            written = _ITEMS.sub(lambda found: found[1] or "[...]", text)
            tree = ast.parse(written, mode="eval").body
            _keep_digits(written, tree)
    except SyntaxError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise _Wrong(f"the condition is nested more than {_MAX_DEPTH} deep", None) from None
    except ValueError as error:
        raise _Wrong(f"the condition holds a character that no text may hold ({error})", None) from None
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _Wrong(f"the condition is nested more than {_MAX_DEPTH} deep", None)
    return tree


_ITEMS = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?<=[\w\])])(?<!\bin)\[\]""")
"""Texts in quotes, and the sign for each item of a list."""


def _keep_digits(text: str, tree: ast.expr) -> None:
    """Give numbers with a fraction the value that stands in the text, where a float does not hold all of its digits."""
    if not _MANY_DIGITS.search(text):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and math.isfinite(node.value):
            exact = _decimal(ast.get_source_segment(text, node) or "")
            if exact is not None and exact != Decimal(repr(node.value)):
                node.value = exact  # type: ignore[assignment] # read by `_read_constant` alone


_MANY_DIGITS = re.compile(r"[\d._]{16}")
"""Floats hold 15 digits of any number."""


def _decimal(text: str) -> Decimal | None:
    """Return the number that a text spells exactly; None if it is not a number."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


_HINTS = (
    (r"=(?!=)", "write == to compare"),
    (r"<>", "write != for not equal"),
    (r"&", "write and"),
    (r"\|", "write or"),
    (r"!(?!=)", "write not"),
    (r"(?i:like|ilike|glob|regexp)\b", "use startswith, endswith, contains or matches"),
    (r"(?i:between)\b", "write low <= name <= high"),
    (r"(?i:and|or|not|in|is)\b", "write and, or, not, in, is in lower case"),
)


def _syntax_error(text: str, error: SyntaxError) -> _Wrong:
    lines = _lines(text)
    line = min(error.lineno or len(lines), len(lines))
    shown = lines[line - 1]
    at = error.offset - 1 if error.offset else len(shown)
    before = re.search(r"\w*\s*\Z", shown[:at])
    places = [shown[at:], before[0] if before else ""]
    hints = [hint for place in places for pattern, hint in _HINTS if re.match(pattern, place)]
    what = hints[0] if hints else error.msg
    return _Wrong(f"not a condition: {what}", (line, len(shown[:at].encode("utf-8", "replace"))))


def _place(node: ast.expr) -> _Place:
    return node.lineno, node.col_offset


def _read(node: ast.expr) -> _Node:
    reader = _READERS.get(type(node))
    if reader is None:
        raise _Wrong(
            "not allowed in a condition; allowed are names of columns, texts, numbers, true, false, == != < <= > "
            f">=, in (…), is null, and, or, not, + - * /, and the functions {_NAMES_OF_FUNCTIONS}",
            _place(node),
        )
    return reader(node)


def _read_condition(tree: ast.expr) -> _Node:
    """Parse an expression that may be true or false."""
    node = _read(tree)
    if isinstance(node, _Call) and node.function not in _CONDITIONS:
        raise _Wrong(f"{node.function!r} gives a value, not a condition; compare it with something", node.at)
    if not isinstance(node, _Call | _Column | bool):
        raise _Wrong(f"{_shown(node)} is a value, not a condition; compare a column with it", _place(tree))
    return node if isinstance(node, bool) else _used(node, "bool")


def _read_value(tree: ast.expr) -> _Node:
    """Parse an expression of columns that is not true or false."""
    node = _read(tree)
    if not isinstance(node, _Column | _Call) or (isinstance(node, _Call) and node.function in _CONDITIONS):
        raise _Wrong("not a value of a sample; write such as len(txt) or json.width * json.height", None)
    return node


def _read_both(node: ast.BoolOp) -> _Node:
    name = "and" if isinstance(node.op, ast.And) else "or"
    return _Call(name, tuple(_read_condition(value) for value in node.values), _place(node))


def _read_sign(node: ast.UnaryOp) -> _Node:
    if isinstance(node.op, ast.Not):
        return _Call("not", (_read_condition(node.operand),), _place(node))
    if not isinstance(node.op, ast.USub):
        raise _Wrong("the only sign is −; write not for the opposite of a condition", _place(node))
    return _computed("-", 0, _read(node.operand), _place(node))


def _read_arithmetic(node: ast.BinOp) -> _Node:
    name = _ARITHMETIC_SIGNS.get(type(node.op))
    if name is None:
        raise _Wrong("arithmetic is + - * /; write and, or for conditions", _place(node))
    return _computed(name, _read(node.left), _read(node.right), _place(node))


def _computed(name: str, left: _Node, right: _Node, at: _Place) -> _Node:
    """Return the call; for two numbers, the result."""
    for side in (left, right):
        if isinstance(side, bool | str) or (isinstance(side, _Call) and side.function in _CONDITIONS):
            what = "a condition" if isinstance(side, _Call) else _shown(side)
            raise _Wrong(f"{name} takes numbers, not {what}", at)
    if isinstance(right, Decimal) and name == "-" and left == 0:
        return right.copy_negate()
    left, right = (float(side) if isinstance(side, Decimal) else side for side in (left, right))
    if isinstance(left, _Column | _Call) or isinstance(right, _Column | _Call):
        return _Call(name, (_used(left, "number"), _used(right, "number")), at)
    try:
        return _number(_ARITHMETIC[name](left, right), at)
    except ZeroDivisionError:
        raise _Wrong("division by zero", at) from None


def _number(value: float, at: _Place) -> float:
    if value.bit_length() > _MAX_BITS if isinstance(value, int) else not math.isfinite(value):
        raise _Wrong("the number is larger than any column could hold", at)
    return value


def _read_comparison(node: ast.Compare) -> _Node:
    if len(node.ops) == 1:
        return _read_pair(node.left, node.ops[0], node.comparators[0])
    if not all(type(op) in _COMPARISON_SIGNS for op in node.ops):
        raise _Wrong("in and is do not go into a chain of comparisons; put parentheses", _place(node))
    sides = pairwise([node.left, *node.comparators])
    pairs = [_read_pair(left, op, right) for (left, right), op in zip(sides, node.ops, strict=True)]
    return _Call("and", tuple(pairs), _place(node))


def _read_pair(left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Node:
    at = _place(left)
    if isinstance(op, ast.Is | ast.IsNot):
        if not _is_null(right):
            raise _Wrong("is goes only before null or not null; write == to compare", _place(right))
        found = _Call("is null", (_used(_of_column(left, "is null"), "presence"),), at)
        return _Call("not", (found,), at) if isinstance(op, ast.IsNot) else found
    if isinstance(op, ast.In | ast.NotIn):
        found = _read_in_list(left, right) if isinstance(right, ast.Tuple | ast.List) else _read_item_in(left, right)
        return _Call("not", (found,), at) if isinstance(op, ast.NotIn) else found
    sides = _read(left), _read(right)
    some = _some_item(*sides) or _some_item(*reversed(sides))
    if isinstance(op, ast.Eq) and some is not None:
        return some
    if not any(isinstance(side, _Column | _Call) for side in sides):
        raise _Wrong("the comparison is of two fixed values; one side must be a column", at)
    uses = [_use_beside(side) for side in reversed(sides)]
    return _Call(_COMPARISON_SIGNS[type(op)], tuple(map(_used, sides, uses)), at)


def _use_beside(other: _Node) -> Use:
    """Return how a column is used that is compared with this value."""
    if isinstance(other, _Column):
        return "any"
    if isinstance(other, _Call):
        return "bool" if other.function in _CONDITIONS else "text" if other.function in ("lower", "upper") else "number"
    return "bool" if isinstance(other, bool) else "text" if isinstance(other, str) else "number"


def _some_item(lists: _Node, item: _Node) -> _Call | None:
    """Return the condition that a list has an item, for `tags[] == 'a'`; None for other sides."""
    if not isinstance(lists, _Column) or not lists.each or isinstance(item, _Column | _Call):
        return None
    return _Call("has", (replace(lists, each=False, use="list"), item), lists.at)


def _refuse_items(condition: _Node) -> None:
    """Raise the error for items of a list in another place than before == and in."""
    for node in _column_nodes(condition):
        if node.each:
            raise _Wrong(f"items of a list are compared by == and in, as in {node}[] == 'a'; 'a' in {node} is the same",
                         node.at)  # fmt: skip


def _read_in_list(left: ast.expr, right: ast.Tuple | ast.List) -> _Call:
    values = _read_list(right)
    lists = _read(left)
    found = [_some_item(lists, value) for value in values]
    if any(found):
        return _Call("or", tuple(filter(None, found)), _place(left))
    return _Call("in", (_used(_of_column(left, "in"), _use_beside(values[0])), *values), _place(left))


def _read_item_in(left: ast.expr, right: ast.expr) -> _Call:
    item, lists = _read(left), _read(right)
    if isinstance(item, _Column | _Call) or not isinstance(lists, _Column):
        raise _Wrong(
            "in takes a list of values, x in ('a', 'b'), or a value and a column of lists, 'a' in x; for a piece of a "
            "text write contains(x, 'a')", _place(right)
        )  # fmt: skip
    return _Call("has", (_used(lists, "list"), item), _place(left))


def _read_list(node: ast.Tuple | ast.List) -> list[_Node]:
    if not node.elts:
        raise _Wrong("the list is empty", _place(node))
    values = [_read(item) for item in node.elts]
    for item, value in zip(node.elts, values, strict=True):
        if isinstance(value, _Column | _Call):
            raise _Wrong("a list holds fixed values only, no column", _place(item))
    return values


def _of_column(node: ast.expr, function: str) -> _Node:
    value = _read(node)
    if not isinstance(value, _Column | _Call):
        raise _Wrong(f"{function} asks about a column, not about {_shown(value)}", _place(node))
    return value


def _read_function(node: ast.Call) -> _Node:
    at, name = _place(node), node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _NUM_ARGS:
        raise _Wrong(f"no such function; there are {_NAMES_OF_FUNCTIONS}", at)
    if node.keywords or len(node.args) != _NUM_ARGS[name]:
        form = f"{name}(column)" if _NUM_ARGS[name] == 1 else f"{name}(column, 'text')"
        raise _Wrong(f"not how the function is called: {form}", at)
    first = _used(_of_column(node.args[0], name), "length" if name == "len" else "text")
    if _NUM_ARGS[name] == 1:
        return _Call(name, (first,), at)
    return _Call(name, (first, _read_pattern(name, node.args[1])), at)


def _read_pattern(function: str, node: ast.expr) -> str:
    pattern = _read(node)
    if not isinstance(pattern, str):
        raise _Wrong(f"the second argument of {function} is a text in quotes", _place(node))
    if function == "matches":
        if "\b" in pattern:
            raise _Wrong(r"the pattern holds a backspace; write r'…' for \b, a word's end", _place(node))
        try:
            pc.match_substring_regex(pa.array([""]), pattern=pattern)
        except pa.ArrowInvalid as error:
            raise _Wrong(_reason(error), _place(node)) from None
    return pattern


def _is_null(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id.lower() == "null"
    return isinstance(node, ast.Constant) and node.value is None


def _read_name(node: ast.Name) -> _Node:
    if _is_null(node):
        raise _Wrong("nothing equals null; write is null or is not null", _place(node))
    if node.id.lower() in ("true", "false"):
        return node.id.lower() == "true"
    return _Column(node.id, (), _place(node))


def _read_part(node: ast.Attribute) -> _Node:
    return _inside(node.value, node.attr, node)


def _read_subscript(node: ast.Subscript) -> _Node:
    part = node.slice
    sign = -1 if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) else 1
    if isinstance(part, ast.UnaryOp) and sign < 0:
        part = part.operand
    named = isinstance(node.value, ast.Name) and node.value.id == "col"
    value = part.value if isinstance(part, ast.Constant) else None
    if value is ... and not named:
        column = _read(node.value)
        if isinstance(column, _Column):
            return replace(column, each=True)
    if isinstance(value, str) and sign > 0:
        _read_constant(ast.copy_location(ast.Constant(value), part))
        return _Column(value, (), _place(node)) if named else _inside(node.value, value, node)
    if type(value) is int and not named and value.bit_length() < _MAX_INDEX_BITS:
        return _inside(node.value, sign * value, node)
    raise _Wrong("[ ] takes the name of a field or a number: meta['any name'], tags[0]; or a column: col['any name']",
                 _place(node))  # fmt: skip


def _inside(whole: ast.expr, part: Part, node: ast.expr) -> _Node:
    column = _read(whole)
    if not isinstance(column, _Column):
        raise _Wrong("only a column has named parts", _place(node))
    return _Column(column.name, (*column.path, part), column.at)


def _read_constant(node: ast.Constant) -> _Node:
    value = node.value
    if value is None:
        raise _Wrong("nothing equals null; write is null or is not null", _place(node))
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Wrong("a lone surrogate, which no text can hold", _place(node)) from None
        return value
    if isinstance(value, bool | Decimal):
        return value
    if isinstance(value, int | float):
        return _number(value, _place(node))
    raise _Wrong("values are texts, numbers, true and false", _place(node))


_READERS: dict[type, Callable[[Any], _Node]] = {
    ast.BoolOp: _read_both,
    ast.UnaryOp: _read_sign,
    ast.BinOp: _read_arithmetic,
    ast.Compare: _read_comparison,
    ast.Call: _read_function,
    ast.Name: _read_name,
    ast.Attribute: _read_part,
    ast.Subscript: _read_subscript,
    ast.Constant: _read_constant,
}
_COMPARISON_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ARITHMETIC_SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_NUM_ARGS = {"len": 1, "lower": 1, "upper": 1, "startswith": 2, "endswith": 2, "contains": 2, "matches": 2}
_NAMES_OF_FUNCTIONS = ", ".join(_NUM_ARGS)
_CONDITIONS = {"and", "or", "not", "is null", "in", "has", "startswith", "endswith", "contains", "matches"} | {
    *_COMPARISON_SIGNS.values()
}


# Evaluation on a batch

_ARROW_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowCapacityError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class _Rows:
    batch: pa.RecordBatch
    values: Mapping[Wanted, pa.Array] | None = None


def _evaluate_condition(condition: _Node | pc.Expression, rows: _Rows) -> pa.Array:
    if isinstance(condition, pc.Expression):
        return _evaluate_expression(condition, rows.batch)
    return _truth(_Call("the condition", (condition,), (1, 0)), 0, _evaluate(condition, rows))


def _rejects(condition: _Node | pc.Expression, values: pa.RecordBatch) -> bool:
    if isinstance(condition, _Call) and condition.function in ("and", "or"):
        rejected = [_rejects(part, values) for part in condition.args]
        return any(rejected) if condition.function == "and" else all(rejected)
    if not isinstance(condition, pc.Expression) and not {*values.schema.names}.issuperset(_columns(condition)):
        return False
    try:
        return not _evaluate_condition(condition, _Rows(values))[0].as_py()
    except _Wrong:  # of an expression with other columns; or reading rows raises it too
        return False


def _evaluate_expression(expression: pc.Expression, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate by a projection: a filter would copy every column, and lacks kernels for some types."""
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    kept = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["kept"]), [rows])
    try:
        column = kept.to_table(use_threads=False)["kept"].combine_chunks()
    except _ARROW_ERRORS as error:
        raise _Wrong(f"the expression cannot be evaluated: {_reason(error)}", None) from None
    if not pa.types.is_boolean(column.type):
        raise _Wrong(f"the expression gives {column.type}, not a bool", None)
    return column


def _evaluate(node: _Node, rows: _Rows) -> Any:
    """Return an Arrow array of one value a row; a literal is returned unchanged."""
    if isinstance(node, _Column):
        return _load(node, rows.batch) if rows.values is None else rows.values[node.wanted]
    if not isinstance(node, _Call):
        return node
    args = [_evaluate(arg, rows) for arg in node.args]
    try:
        return _FUNCTIONS[node.function](node, args)
    except _ARROW_ERRORS as error:
        named = ", ".join(repr(arg.name) for arg in node.args if isinstance(arg, _Column))
        raise _Wrong(f"{node.function!r}{' of ' if named else ''}{named} fails: {_reason(error)}", node.at) from None


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _load(node: _Column, batch: pa.RecordBatch) -> pa.Array:
    try:
        return column_values(batch, node.wanted.field)
    except UsageError as error:
        raise _Wrong(error.message, node.at, error.column, error.advice) from None


def _widened(values: Any) -> Any:
    """Return an array or a scalar in a type that pyarrow 26 can compare: it lacks halves and many small decimals."""
    kind = values.type
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    small = pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind)
    return values.cast(pa.decimal128(kind.precision, kind.scale)) if small else values


_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("bool", pa.types.is_boolean),
    ("text", is_text),
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("null", pa.types.is_null),
    ("bytes", lambda kind: is_bytes(kind) or is_ref(kind) or pa.types.is_fixed_size_binary(kind)),
    ("time", pa.types.is_temporal),
)
_NUMBERS = {"integer", "float", "decimal"}
_COMPARABLE = {"bool", "text", "time"} | _NUMBERS
_OF = {bool: {"bool"}, str: {"text", "time", "decimal"}, int: _NUMBERS, float: _NUMBERS, Decimal: _NUMBERS}
"""Kinds of columns that a literal of a Python type can be compared with."""


def _kind(kind: pa.DataType) -> str:
    return next((name for name, holds in _KINDS if holds(kind)), "other")


def _settled(column: pa.Array, value: bool) -> pa.Array:
    """Return one answer for all rows, but null where the column is null."""
    return pa.array(np.full(len(column), value), mask=~present(column))


def _truth(call: _Call, which: int, value: Any) -> Any:
    """Return an argument as true, false or null."""
    if isinstance(value, bool):
        return pa.scalar(value)
    if pa.types.is_null(value.type):
        return value.cast(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise _misfit(call, which, value, "is not bool; compare it with something")
    return value


def _logic(kernel: Callable[[Any, Any], Any], call: _Call, args: Sequence[Any]) -> Any:
    return reduce(kernel, [_truth(call, i, arg) for i, arg in enumerate(args)])


def _not(call: _Call, args: Sequence[Any]) -> Any:
    return pc.invert(_truth(call, 0, args[0]))


def _null(_call: _Call, args: Sequence[Any]) -> pa.Array:
    return pa.array(~present(args[0]))


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_KERNELS = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_BETWEEN = {
    1: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
    -1: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
}
"""The comparison with the result of `_in_type` that is correct if the literal is slightly above (1) or below (−1) it.
"""


def _compare(call: _Call, args: Sequence[Any]) -> pa.Array:
    left, right = args
    if not isinstance(left, pa.Array):
        return _compare_literal(call, 1, right, _FLIPPED[call.function], left)
    if not isinstance(right, pa.Array):
        return _compare_literal(call, 0, left, call.function, right)
    return _compare_columns(call, left, right)


def _compare_literal(call: _Call, which: int, column: pa.Array, sign: str, literal: _Literal) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    value, more = _in_type(call, which, column, literal)
    if more:
        if sign in ("==", "!="):
            return _settled(column, sign == "!=")
        sign = _BETWEEN[more][sign]
    return _KERNELS[sign](_widened(column), _widened(value))


def _in_type(call: _Call, which: int, column: pa.Array, literal: _Literal) -> tuple[pa.Scalar, int]:
    """Return the literal in the column's type, and 0.

    If the type cannot hold the value, return its neighbour, and the side of the literal: 1 above, −1 below.
    """
    kind = column.type
    if _kind(kind) not in _OF[type(literal)]:
        wrong = _misfit(call, which, column, f"cannot be compared with {_shown(literal)}{_why(kind)}")
        if is_text(kind) and _OF[type(literal)] is _NUMBERS and wrong.column is not None and "." not in wrong.column:
            wrong.advice = f"Give the column a type of numbers, such as --type {shlex.quote(wrong.column)}=double."
        raise wrong
    if isinstance(literal, bool):
        return pa.scalar(literal), 0
    if isinstance(literal, str) and _kind(kind) != "decimal":
        try:
            return _near_text(literal, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            complaint = f"cannot be compared with {_shown(literal)}: {_reason(error)}"
            raise _misfit(call, which, column, complaint) from None
    if isinstance(literal, str) and _decimal(literal) is None:
        raise _misfit(call, which, column, f"cannot be compared with {_shown(literal)}, which is not a number")
    value, more = _NEIGHBOURS[_kind(kind)](literal, kind)
    return pa.scalar(value, kind), more


def _near_text(literal: str, kind: pa.DataType) -> tuple[pa.Scalar, int]:
    """As `_in_type`, for a text compared with a type of texts or times."""
    try:
        return pa.scalar(literal).cast(kind), 0
    except pa.ArrowInvalid:
        moment = _timestamp(literal, kind.tz) if pa.types.is_timestamp(kind) else None
        if moment is None:
            raise
        value, more = _near_integer(moment / _NANOSECONDS[kind.unit], pa.int64())
        return pa.scalar(value, kind), more


def _timestamp(text: str, zone: str | None) -> Fraction | None:
    """Return the nanoseconds since 1970 of a text that is a time, in any unit; None if it is not a time."""
    for unit, nanoseconds in _NANOSECONDS.items():
        try:
            return Fraction(pa.scalar(text).cast(pa.timestamp(unit, zone)).value * nanoseconds)
        except pa.ArrowInvalid:
            continue
    return None


_NANOSECONDS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def _why(kind: pa.DataType) -> str:
    if _kind(kind) == "bytes":
        return "; of bytes there is only len(x) and is null"
    return "; write true or false, or the name alone" if pa.types.is_boolean(kind) else ""


def _near_integer(literal: float | Decimal | Fraction, kind: pa.DataType) -> tuple[int, int]:
    signed = pa.types.is_signed_integer(kind)
    low, high = (
        (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1) if signed else (0, (1 << kind.bit_width) - 1)
    )
    if not low <= literal <= high:
        return (high, 1) if literal > high else (low, -1)
    value = math.floor(literal)
    return value, int(literal > value)


def _near_float(literal: float | Decimal, kind: pa.DataType) -> tuple[float, int]:
    narrow = np.dtype(f"f{kind.bit_width // 8}")
    with np.errstate(over="ignore"):
        value = float(narrow.type(literal))
    if math.isinf(value):
        return math.copysign(float(np.finfo(narrow).max), value), 1 if value > 0 else -1
    exact = isinstance(literal, int)  # a number with a fraction means the nearest value
    return value, (literal > value) - (literal < value) if exact else 0


def _near_decimal(literal: float | Decimal | str, kind: pa.DataType) -> tuple[Decimal, int]:
    with localcontext() as context:
        context.prec = _MAX_BITS
        unit = Decimal(1).scaleb(-kind.scale)
        largest = Decimal(10) ** (kind.precision - kind.scale) - unit
        exact = Decimal(repr(literal) if isinstance(literal, float) else literal)
        if exact.copy_abs() > largest:
            return (largest, 1) if exact > 0 else (-largest, -1)
        value = exact.quantize(unit, ROUND_FLOOR)
        return value, int(exact > value)


_NEIGHBOURS: dict[str, Callable[[Any, pa.DataType], tuple[Any, int]]] = {
    "integer": _near_integer,
    "float": _near_float,
    "decimal": _near_decimal,
}


def _compare_columns(call: _Call, left: pa.Array, right: pa.Array) -> pa.Array:
    kinds = _kind(left.type), _kind(right.type)
    if "null" in kinds:
        return pa.nulls(len(left), pa.bool_())
    numbers = set(kinds) <= _NUMBERS and set(kinds) != {"float", "decimal"}
    if not numbers and (kinds[0] != kinds[1] or kinds[0] not in _COMPARABLE):
        raise _misfit(call, 0, left, f"cannot be compared with {_type_name(right.type)}{_why(left.type)}")
    if numbers and "float" in kinds:
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
    elif numbers and (set(kinds) != {"integer"} or pa.uint64() in (left.type, right.type)):
        if _digits_together(left.type, right.type) > _DECIMAL256_DIGITS:
            return _compare_values(call, left, right)
        left, right = _as_decimals(left, right)
    elif _is_zoned(left.type) and _is_zoned(right.type):
        right = right.cast(pa.timestamp(right.type.unit, left.type.tz))
    return _KERNELS[call.function](left, right)


def _as_decimals(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return numbers in comparable types: integers if all fit into 64 bits, signed or not."""
    left, right = (c.cast(pa.decimal128(20, 0)) if pa.types.is_integer(c.type) else c for c in (left, right))
    kinds = left.type, right.type
    if _digits_together(*kinds) > _DECIMAL128_DIGITS:
        left = left.cast(pa.decimal256(left.type.precision, left.type.scale))
    return left, right


def _digits_together(*kinds: pa.DataType) -> int:
    """Return the digits of a type that holds the values of both types of whole numbers or decimals."""
    sizes = [(20, 0) if pa.types.is_integer(kind) else (kind.precision, kind.scale) for kind in kinds]
    return max(precision - scale for precision, scale in sizes) + max(scale for _, scale in sizes)


def _compare_values(call: _Call, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare decimals that no type holds together: Python's are compared exactly."""
    compare = _COMPARISONS[call.function]
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([None if a is None or b is None else compare(a, b) for a, b in pairs], pa.bool_())


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _in(call: _Call, args: Sequence[Any]) -> pa.Array:
    column, *literals = args
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    found = [_in_type(call, 0, column, literal) for literal in literals]
    values = _widened(pa.array([value for value, more in found if not more], column.type))
    column = _widened(column)
    if pa.types.is_floating(column.type):
        column, values = pc.add(column, 0.0), pc.add(values, 0.0)  # is_in distinguishes −0.0 from 0.0
    kept = pc.is_in(column, values)
    return pc.if_else(column.is_valid(), kept, pa.scalar(None, pa.bool_()))


def _has(call: _Call, args: Sequence[Any]) -> pa.Array:
    """Return whether each list has an item that equals the literal; null for a null list."""
    column, literal = args
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    if is_text(column.type):
        raise _misfit(call, 0, column, f"is not a list; for a piece of a text write contains(x, {_shown(literal)})")
    if not isinstance(column.type, LIST_TYPES):
        raise _misfit(call, 0, column, f"is not a list; write == {_shown(literal)}")
    items, ends = listed_items(column)
    if isinstance(items.type, pa.JsonType):
        texts = items.storage
        equal = pc.is_in(
            texts, pa.array([t for t in texts.unique().to_pylist() if _is_json_of(t, literal)], texts.type)
        )
    elif len(items):
        items = pc.cast(items, items.type.value_type) if pa.types.is_dictionary(items.type) else items
        equal = _compare_literal(call, 0, items, "==", literal)
    else:
        equal = pa.array([], pa.bool_())
    before = np.append(0, np.cumsum(np.asarray(equal.fill_null(False).to_numpy(zero_copy_only=False))))  # noqa: FBT003 - the value
    return pa.array(before[ends[1:]] > before[ends[:-1]], mask=~present(column))


def _is_json_of(text: str | None, literal: _Literal) -> bool:
    """Return whether a JSON text is that of a value: numbers are compared exactly, true is no number."""
    if text is None:
        return False
    value = json_text.loads(text)
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    if isinstance(value, float) and isinstance(literal, Decimal):
        literal = float(literal)
    return isinstance(value, str) == isinstance(literal, str) and bool(value == literal)


def _arithmetic(call: _Call, args: Sequence[Any]) -> pa.Array:
    kinds = [_kind(arg.type) if isinstance(arg, pa.Array) else type(arg).__name__ for arg in args]
    for i, (arg, kind) in enumerate(zip(args, kinds, strict=True)):
        if kind not in ("integer", "float", "int", "null"):
            raise _misfit(call, i, arg, f"does not go with {call.function}, which takes integers and floats")
    target = pa.float64() if "float" in kinds or call.function == "/" else pa.int64()
    left, right = (arg.cast(target) if isinstance(arg, pa.Array) else pa.scalar(arg, target) for arg in args)
    if call.function == "/":
        right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, target), right)
    return _ARITHMETIC_KERNELS[call.function](left, right)


_ARITHMETIC_KERNELS = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide,
}


def _length(call: _Call, args: Sequence[Any]) -> pa.Array:
    column = args[0]
    kind = column.type
    if is_ref(kind):
        return _reference_length(call, column)
    if is_text(kind):
        return pc.utf8_length(column)
    if _kind(kind) == "bytes":
        return pa.array(byte_lengths(column), mask=~present(column))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.int64())
    if not isinstance(kind, LIST_TYPES):
        raise _misfit(call, 0, column, "has no length")
    return pc.list_value_length(column)


def _reference_length(call: _Call, column: pa.Array) -> pa.Array:
    refs = unpack(column)
    unknown = refs.valid & ((refs.length < 0) | (refs.codec != 0) | (refs.frame >= 0))
    if unknown.any():
        row = int(np.argmax(unknown))
        raise _misfit(call, 0, column, f"does not tell the length of row {row} before its bytes are fetched")
    return pa.array(refs.length, mask=~refs.valid)


def _text(kernel: Callable[..., pa.Array], call: _Call, args: Sequence[Any]) -> pa.Array:
    column, *patterns = args
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not is_text(column.type):
        raise _misfit(call, 0, column, f"is not text; {call.function} takes only texts")
    return kernel(column, *patterns)


_FUNCTIONS: dict[str, Callable[[_Call, Sequence[Any]], Any]] = {
    "and": partial(_logic, pc.and_kleene),
    "or": partial(_logic, pc.or_kleene),
    "not": _not,
    "is null": _null,
    "in": _in,
    "has": _has,
    **dict.fromkeys(_KERNELS, _compare),
    **dict.fromkeys(_ARITHMETIC_KERNELS, _arithmetic),
    "len": _length,
    "lower": partial(_text, pc.utf8_lower),
    "upper": partial(_text, pc.utf8_upper),
    "startswith": partial(_text, pc.starts_with),
    "endswith": partial(_text, pc.ends_with),
    "contains": partial(_text, pc.match_substring),
    "matches": partial(_text, pc.match_substring_regex),
}
"""By name: a function from the call and its evaluated arguments to one value a row."""
