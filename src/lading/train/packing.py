"""Pack documents of tokens into sequences of one length: `lading.pack`.

Two methods:

- `split`: all documents, one after the other, are cut every `length` tokens. No token is padding, but for the last
  sequence of an epoch.
- `best-fit`: a document that fits a sequence is kept whole. Documents are placed a window at a time, the longest first,
  each into the fullest sequence that has room for it. What stays empty is padding.

Python handles documents; numpy handles tokens.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.errors import DataError, FunctionError, UsageError
from lading.features.types import decode, feature_of
from lading.train.collate import collated
from lading.train.loader import Loader
from lading.train.reading import PADDING

__all__ = ["Method", "Packer", "pack"]

Method: TypeAlias = Literal["split", "best-fit"]

_Ids: TypeAlias = NDArray[np.int64]

_VERSION: Final = 1
_TEXTS: Final = ("text", "txt")
_TOKENS: Final = ("input_ids", "tokens")
_EMPTY: Final = -1
"""The document of a place that is padding."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """What decides about the sequences, but for the documents.

    Attributes:
        method: how documents are packed.
        length: tokens of a sequence.
        end: the token behind every document, or None.
        window: sequences' worth of tokens that are placed at once.
    """

    method: Method
    length: int
    end: int | None
    window: int


@dataclass(frozen=True, slots=True)
class _Origin:
    """A place in the documents of a rank, from which reading can begin again.

    Attributes:
        loader: state of the loader before a batch.
        documents: of this batch before the place.
        given: what sequences have taken from there on: tokens of `split`, whole sequences of `best-fit`.
    """

    loader: dict[str, Any]
    documents: int
    given: int


@dataclass(frozen=True, slots=True)
class _Documents:
    """Documents of a batch of the loader.

    Attributes:
        origin: where the first one is.
        ids: the tokens of each.
    """

    origin: _Origin
    ids: list[_Ids]


def pack(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    loader: Loader,
    length: int,
    *,
    tokenizer: Any = None,
    column: str | None = None,
    method: Method = "split",
    end: int | None = None,
    pad: int = 0,
    batch_size: int = 1,
    window: int = 128,
) -> Packer:
    """Pack the documents of a loader into sequences of exactly `length` tokens, by the batch.

    Example:
        loader = lading.loader("texts/*.parquet", 256, shuffle=True, seed=7, collate="torch")
        packed = lading.pack(loader, 2048, tokenizer=tokenizer, end=tokenizer.eos_token_id, batch_size=8)
        for batch in packed:
            batch["input_ids"], batch["position_ids"], batch["segment_ids"]    # each (8, 2048), int64

    `segment_ids` number the documents of a sequence from 1; 0 is padding. `position_ids` begin again at 0 with each
    document, and with each sequence. All are arrays, or tensors where the loader's `collate` is `torch`. The last
    sequence of an epoch is filled up with padding, and the last batch may have fewer sequences. Memory: 8 bytes a token
    of a batch of the loader, of `window` sequences, and of a batch.

    A rank packs the documents of its own share, so ranks may have different numbers of batches: train for a number of
    steps that all of them reach. The state of each rank is its own.

    Args:
        loader: gives texts, or lists of token ids.
        length: tokens of a sequence.
        tokenizer: a function of a text that returns its token ids; or a tokenizer of `tokenizers`, `tiktoken` or
            `transformers`, which is given a batch of texts at once. None where the column has token ids.
        column: column of the texts or ids; by default `text` or `txt`, without a tokenizer `input_ids` or `tokens`.
        method: `split` cuts all documents, one after the other, every `length` tokens. `best-fit` keeps documents
            whole, cuts only those that are longer than a sequence, and marks what stays empty.
        end: id of the token that ends a document, put behind each; None for none.
        pad: id of padding.
        batch_size: sequences a batch.
        window: of `best-fit`: documents are placed when they make up so many sequences.

    Raises:
        UsageError: an argument is wrong, or the loader gives interleaved documents.
    """
    if not isinstance(loader, Loader):
        raise UsageError("pack takes a loader of lading's", expected="lading.loader(…)", found=type(loader).__name__)
    if any(each.view == "interleaved" for each in loader.datasets):
        raise UsageError(
            "documents with media cannot be packed: a sequence has tokens of text alone",
            advice="Write the texts by themselves first, and pack those: ds.map(…).write(…).",
        )
    if method not in ("split", "best-fit"):
        raise UsageError("no such way to pack", expected="split or best-fit", found=repr(method))
    for name, size in (("length", length), ("batch_size", batch_size), ("window", window)):
        if type(size) is not int or size < 1:
            raise UsageError(f"{name} must be a whole number of at least 1", found=repr(size))
    texts = _Texts(tokenizer, column, end)
    return Packer(loader, _Settings(method, length, end, window), texts, pad, batch_size)


class Packer:
    """Gives batches of packed sequences; made by `lading.pack`. A `for` loop is one epoch of the loader.

    A loop that ends early (`break`) starts its epoch again, unless `load_state_dict` says otherwise.

    Attributes:
        counts: what was reported so far, by a short phrase.
    """

    def __init__(self, loader: Loader, settings: _Settings, texts: _Texts, pad: int, batch_size: int) -> None:
        self._loader, self._settings, self._texts = loader, settings, texts
        self._pad, self._batch_size = pad, batch_size
        self._torch = loader.collate == "torch"
        self._origin: _Origin | None = None
        self._resumed: _Origin | None = None
        self._looping: int | None = None
        self.counts: Counter[str] = Counter()

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next loop gives."""
        return self._loader.epoch if self._looping is None else self._looping

    def set_epoch(self, epoch: int) -> None:
        """Make the next loop give this epoch from its begin, or from where `load_state_dict` has it go on."""
        if self._resumed is None or epoch != self.epoch:
            self._loader.set_epoch(epoch)
            self._origin = self._resumed = self._looping = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begin, self._resumed = self._resumed, None
        if begin is None and self._looping is not None:
            self._loader.set_epoch(self._looping)
        self._looping = self._loader.epoch
        begin = begin or _Origin(self._loader.state_dict(), 0, 0)
        settings = self._settings
        rows = (_SplitRows if settings.method == "split" else _FittedRows)(settings, begin.given)
        for documents in self._documents(begin.documents):
            rows.add(documents)
            while (batch := rows.take(self._batch_size)) is not None:
                yield self._given(batch, rows.origin)
        rows.finish()
        while (batch := rows.take(self._batch_size)) is not None:
            yield self._given(batch, rows.origin)
        self._origin = self._looping = None

    def state_dict(self) -> dict[str, Any]:
        """Where the next sequence begins: a small dict of what JSON has, and no tokens. Each rank has its own.

        It holds the state of the loader before the first document that is not yet packed as a whole. Inside of a loop,
        the batch that the loop was given last counts as used.
        """
        origin = self._origin or self._resumed or _Origin(self._loader.state_dict(), 0, 0)
        return {
            **self._fixed_state(),
            "documents": origin.documents,
            "given": origin.given,
            "loader": origin.loader,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next loop go on where `state_dict` was made. The tokenizer must be the same.

        Raises:
            UsageError: it is no state, or one of another rank, of other settings, of other data or of another order;
                the error names what differs.
        """
        mine = self.state_dict()
        missing = [name for name in mine if name not in state] if isinstance(state, Mapping) else [*mine]
        if missing:
            raise UsageError("this is no state of packed sequences", expected=f"a dict with {', '.join(mine)}",
                             found=f"{', '.join(missing[:3])} missing")  # fmt: skip
        for name, value in self._fixed_state().items():
            if state[name] != value:
                raise UsageError(
                    f"the state belongs to other sequences: {name} differs", expected=repr(value),
                    found=repr(state[name]),
                    advice="Pack with the same settings, and give each of as many ranks the state that it saved.",
                )  # fmt: skip
        for name in ("documents", "given"):
            if type(state[name]) is not int or state[name] < 0:
                raise UsageError(f"the {name} of the state are no such number", found=repr(state[name]))
        self._loader.load_state_dict(state["loader"])
        self._resumed = _Origin(dict(state["loader"]), state["documents"], state["given"])
        self._origin = self._looping = None

    def _fixed_state(self) -> dict[str, Any]:
        settings, share = self._settings, self._loader.share
        return {
            "version": _VERSION,
            "method": settings.method,
            "length": settings.length,
            "end": settings.end,
            "window": settings.window if settings.method == "best-fit" else None,
            "rank": share.rank,
            "world_size": share.world_size,
        }

    def _documents(self, skipped: int) -> Iterator[_Documents]:
        """The documents of the loader by its batches, without the first ones."""
        batches = iter(self._loader)
        state = self._loader.state_dict()
        for batch in batches:
            ids = self._texts.ids(batch, self.counts)
            before, skipped = min(skipped, len(ids)), max(skipped - len(ids), 0)
            yield _Documents(_Origin(state, before, 0), ids[before:])
            state = self._loader.state_dict()

    def _given(self, rows: tuple[_Ids, _Ids], origin: _Origin | None) -> dict[str, Any]:
        self._origin = origin or _Origin(self._loader.state_dict(), 0, 0)
        found = _columns(*rows, self._pad)
        return {name: collated(values, torch=self._torch) for name, values in found.items()}

    def __repr__(self) -> str:
        return f"Packer({self._settings.method}, length {self._settings.length:,}, of {self._loader!r})"


def _columns(tokens: _Ids, documents: _Ids, pad: int) -> dict[str, Any]:
    """The columns of a batch: (sequences, length) of tokens, and the document of each."""
    empty = documents == _EMPTY
    begins = np.zeros(documents.shape, bool)
    begins[:, 0] = True
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    places = np.broadcast_to(np.arange(documents.shape[1]), documents.shape)
    positions = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    return {
        "input_ids": np.where(empty, pad, tokens),
        "position_ids": np.where(empty, 0, positions),
        "segment_ids": np.where(empty, 0, np.cumsum(begins, axis=1)),
    }


class _SplitRows:
    """Cuts documents, one after the other, into rows.

    Args:
        settings: how they are cut.
        given: tokens of the first documents that were given before.
    """

    def __init__(self, settings: _Settings, given: int) -> None:
        self._length, self._used = settings.length, given
        self._held: deque[tuple[_Origin, _Ids, _Ids]] = deque()
        self._tokens, self._number, self._finished = 0, 0, False

    def add(self, documents: _Documents) -> None:
        """Take documents."""
        lengths = [len(ids) for ids in documents.ids]
        numbers = np.repeat(np.arange(self._number, self._number + len(lengths)), lengths)
        tokens = np.concatenate(documents.ids) if lengths else np.zeros(0, np.int64)
        self._held.append((documents.origin, tokens, numbers))
        self._tokens += len(tokens)
        self._number += len(lengths)
        self._forget()

    def finish(self) -> None:
        """Say that no document follows."""
        self._finished = True

    def take(self, count: int) -> tuple[_Ids, _Ids] | None:
        """The next rows, and the document of each token; None before there are as many."""
        there = self._tokens - self._used
        if there <= 0 or (there < count * self._length and not self._finished):
            return None
        rows = min(count, -(-there // self._length))
        size = min(rows * self._length, there)
        parts, found, begin, end = [], [], self._used, self._used + size
        for _, tokens, numbers in self._held:
            parts.append((tokens[begin:end], numbers[begin:end]))
            begin, end = 0, end - len(tokens)
            if end <= 0:
                break
        for column in (0, 1):
            values = np.full(rows * self._length, _EMPTY, np.int64)
            values[:size] = np.concatenate([part[column] for part in parts])
            found.append(values.reshape(rows, self._length))
        self._used += size
        self._forget()
        return found[0], found[1]

    @property
    def origin(self) -> _Origin | None:
        """Where the first document is of which tokens are left; None if none is."""
        if not self._held:
            return None
        first = self._held[0][0]
        return _Origin(first.loader, first.documents, self._used)

    def _forget(self) -> None:
        while self._held and self._used >= len(self._held[0][1]):
            _, tokens, _ = self._held.popleft()
            self._used -= len(tokens)
            self._tokens -= len(tokens)


@dataclass(slots=True)
class _Window:
    """Sequences of documents that were placed at once.

    Attributes:
        origin: where the first document is.
        rows: the pieces of documents in each sequence.
        given: how many of the sequences were given.
    """

    origin: _Origin
    rows: list[list[tuple[int, _Ids]]]
    given: int


class _FittedRows:
    """Places whole documents into rows, a window at a time.

    Args:
        settings: how they are placed.
        given: rows of the first window that were given before.
    """

    def __init__(self, settings: _Settings, given: int) -> None:
        self._settings, self._given = settings, given
        self._windows: deque[_Window] = deque()
        self._open: list[_Ids] = []
        self._begin: _Origin | None = None
        self._tokens, self._ready, self._finished = 0, 0, False

    def add(self, documents: _Documents) -> None:
        """Take documents."""
        most = self._settings.window * self._settings.length
        for place, ids in enumerate(documents.ids):
            if self._begin is None:
                self._begin = _Origin(documents.origin.loader, documents.origin.documents + place, 0)
            self._open.append(ids)
            self._tokens += len(ids)
            if self._tokens >= most:
                self._close()

    def finish(self) -> None:
        """Say that no document follows."""
        self._finished = True
        if self._begin is not None:
            self._close()

    def _close(self) -> None:
        """Place the documents of the window."""
        assert self._begin is not None, "the caller has looked"
        rows = fitted(self._open, self._settings.length)
        self._windows.append(_Window(self._begin, rows, self._given))
        self._ready += max(len(rows) - self._given, 0)
        self._open, self._begin, self._tokens, self._given = [], None, 0, 0
        self._forget()

    def take(self, count: int) -> tuple[_Ids, _Ids] | None:
        """The next rows, and the document of each token; None before there are as many."""
        if not self._ready or (self._ready < count and not self._finished):
            return None
        count = min(count, self._ready)
        tokens = np.zeros((count, self._settings.length), np.int64)
        documents = np.full((count, self._settings.length), _EMPTY, np.int64)
        for i in range(count):
            window, at = self._windows[0], 0
            for number, ids in window.rows[window.given]:
                tokens[i, at : at + len(ids)] = ids
                documents[i, at : at + len(ids)] = number
                at += len(ids)
            window.given += 1
            self._forget()
        self._ready -= count
        return tokens, documents

    @property
    def origin(self) -> _Origin | None:
        """Where the first document of the first window is of which rows are left; None if none are."""
        if not self._windows:
            return self._begin
        first = self._windows[0]
        return _Origin(first.origin.loader, first.origin.documents, first.given)

    def _forget(self) -> None:
        while self._windows and self._windows[0].given >= len(self._windows[0].rows):
            self._windows.popleft()


def fitted(documents: Sequence[_Ids], length: int) -> list[list[tuple[int, _Ids]]]:
    """Sequences of documents: for each, the number and the tokens of every piece; in the order of their first pieces.

    A document that is longer than a sequence is cut: pieces of a whole sequence, and the rest. Pieces are placed from
    the longest to the shortest, each into the sequence with the least room that is enough.

    Source: H. Ding et al., "Fewer Truncations Improve Language Modeling" (2024).
    """
    pieces = [
        (number, ids[begin : begin + length])
        for number, ids in enumerate(documents)
        for begin in range(0, len(ids), length)
    ]
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    for piece in sorted(range(len(pieces)), key=lambda i: (-len(pieces[i][1]), i)):
        size = len(pieces[piece][1])
        place = bisect_left(rooms, (size, -1))
        if place == len(rooms):
            room, row = length, len(rows)
            rows.append([])
        else:
            room, row = rooms.pop(place)
        rows[row].append(piece)
        if room > size:
            insort(rooms, (room - size, row))
    return [[pieces[i] for i in sorted(row)] for row in sorted(rows, key=min)]


class _Texts:
    """Gives the token ids of the documents of a batch.

    Args:
        tokenizer: as `pack` takes it.
        column: of the texts or ids; None for one of the usual names.
        end: put behind every document.
    """

    def __init__(self, tokenizer: Any, column: str | None, end: int | None) -> None:
        self._tokenizer, self._column = tokenizer, column
        self._end = np.array([] if end is None else [end], np.int64)
        self._tokenized = None if tokenizer is None else _by_batch(tokenizer)

    def ids(self, batch: Any, counts: Counter[str]) -> list[_Ids]:
        """The tokens of each document, without padding of the loader; nulls are no documents, and are counted."""
        names = _names(batch)
        name = self._name(names)
        values = _values(batch, name)
        if PADDING in names:
            again = _values(batch, PADDING)
            values = [value for value, padding in zip(values, again, strict=True) if not padding]
        there = [value for value in values if value is not None]
        if len(there) < len(values):
            counts[f"samples without {name}, left out"] += len(values) - len(there)
        if self._tokenized is None:
            found: Sequence[Any] = there
        else:
            wrong = next((value for value in there if not isinstance(value, str)), None)
            if wrong is not None:
                raise UsageError(f"the column {name!r} has no texts", expected="str", found=type(wrong).__name__,
                                 advice="Name the column of texts: column=…; or leave the tokenizer out.")  # fmt: skip
            try:
                found = self._tokenized(there)
            except Exception as error:
                raise FunctionError("the tokenizer raised an error", column=name,
                                    found=f"{type(error).__name__}: {error}") from error  # fmt: skip
        return [np.concatenate([_as_ids(ids, name), self._end]) for ids in found]

    def _name(self, columns: Sequence[str]) -> str:
        usual = _TOKENS if self._tokenizer is None else _TEXTS
        if self._column is not None and self._column in columns:
            return self._column
        found = [name for name in usual if name in columns]
        if self._column is not None or len(found) != 1:
            what = "of token ids" if self._tokenizer is None else "of texts"
            raise UsageError(
                f"several columns {what} to pack" if len(found) > 1 else f"no column {what} to pack",
                expected=" or ".join(usual) if self._column is None else repr(self._column),
                found=", ".join(columns), advice='Name the column: lading.pack(…, column="…").',
            )  # fmt: skip
        return found[0]


def _names(batch: Any) -> list[str]:
    """The columns of a batch of a loader, however it collates."""
    if isinstance(batch, pa.Table):
        return list(batch.column_names)
    if isinstance(batch, list) and all(isinstance(sample, dict) for sample in batch):
        return list(dict.fromkeys(name for sample in batch for name in sample))
    if isinstance(batch, dict):
        return list(batch)
    raise UsageError("a batch of the loader has no columns", found=type(batch).__name__,
                     advice='Use collate="numpy", "torch", "list" or "arrow".')  # fmt: skip


def _values(batch: Any, name: str) -> Sequence[Any]:
    """The values of a column of a batch."""
    if isinstance(batch, list):
        return [sample.get(name) for sample in batch]
    if not isinstance(batch, pa.Table):
        return batch[name]  # type: ignore[no-any-return] # a list, an array or a tensor
    field, column = batch.schema.field(name), batch.column(name)
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        return [part for chunk in column.chunks for part in _lists(chunk)]
    feature = feature_of(field)
    return [None if value is None else decode(feature, value) for value in column.to_pylist()]


def _lists(chunk: pa.Array) -> Iterator[Any]:
    """Lists of numbers as slices of one array."""
    lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
    parts = np.split(chunk.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths))
    for part, valid in zip(parts, chunk.is_valid().to_pylist(), strict=False):
        yield part if valid else None


def _as_ids(values: Any, name: str) -> _Ids:
    """Token ids as an array. Raises DataError."""
    try:
        ids = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError("token ids must be a list of whole numbers", column=name, found=str(error)[:80]) from error
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise DataError("token ids must be a list of whole numbers", column=name, found=repr(values)[:80])
    return ids.astype(np.int64)


def _by_batch(tokenizer: Any) -> Callable[[list[str]], Sequence[Any]]:
    """The function that gives the token ids of each of several texts."""
    if hasattr(tokenizer, "encode_batch"):  # tokenizers, tiktoken
        return lambda texts: [getattr(each, "ids", each) for each in tokenizer.encode_batch(texts)] if texts else []
    if not callable(tokenizer):
        raise UsageError("this is no tokenizer", expected="a function of a text, or an object with encode_batch",
                         found=type(tokenizer).__name__)  # fmt: skip
    if hasattr(tokenizer, "model_input_names"):  # transformers
        return lambda texts: list(tokenizer(texts)["input_ids"]) if texts else []
    return lambda texts: [tokenizer(text) for text in texts]
