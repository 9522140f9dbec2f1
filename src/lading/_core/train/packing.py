"""Pack documents of tokens into sequences of one length: `lading.pack`.

Two methods:

- `split`: all documents, one after the other, are cut every `length` tokens. No token is padding, but for the last
  sequence of an epoch.
- `best-fit`: a document that fits a sequence is kept whole. Documents are placed a window at a time, the longest first,
  each into the fullest sequence that has room for it. What stays empty is padding.

Each rank packs all documents, in one order, and gives every n-th sequence. So sequences do not depend on the number of
ranks, all ranks have as many batches, and a state is the same on each.

Tokens alone decide about the sequences. So a rank reads those of all documents, and columns that are kept beside them
for its own sequences alone (`Loader.separate_columns` says where that can be).

Python handles documents; numpy handles tokens.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import public, whole_number
from lading._core.train.collate import collated
from lading._core.train.loader import Loader
from lading._core.train.rows import PADDING
from lading._core.train.tokens import DocumentTokens, Ids, ImageTokens, TooLong, columns_in
from lading.errors import DataError, UsageError

__all__ = ["Method", "Packer", "pack"]

Method: TypeAlias = Literal["split", "best-fit"]

_VERSION: Final = 2
_OF_EACH_RANK: Final = 1
"""Version of states that each rank had by itself: those of a single rank are as today."""
_WINDOW: Final = 128
_MADE: Final = ("input_ids", "position_ids", "segment_ids")


@dataclass(frozen=True, slots=True)
class _Settings:
    """What decides about the sequences, but for the documents.

    Attributes:
        method: how documents are packed.
        length: tokens of a sequence.
        end: the token behind every document, or None.
        window: sequences' worth of tokens that are placed at once.
        image_token: the token that stands for images, or None.
        too_long: what is done with a document that stays whole, and is longer than a sequence.
    """

    method: Method
    length: int
    end: int | None
    window: int
    image_token: int | None = None
    too_long: TooLong = "error"


class _Origin(NamedTuple):
    """A place in the documents, from which reading can begin again.

    Attributes:
        loader: state of the loader before a batch.
        documents: of this batch before the place.
        given: what sequences have taken from there on: tokens of `split`, whole sequences of `best-fit`.
    """

    loader: dict[str, Any]
    documents: int
    given: int = 0


class _Document(NamedTuple):
    """A document with tokens.

    Attributes:
        ids: the tokens.
        kept: its values of the columns that are kept; or its position in the epoch, where they are read later.
        origin: where it begins.
        after: where the next one begins.
    """

    ids: Ids
    kept: Any
    origin: _Origin
    after: _Origin


_Sequence: TypeAlias = tuple[list[Ids], list[Any], _Origin]
"""The pieces of documents in a sequence, the kept values of each, and where the next sequence begins."""

_Step: TypeAlias = tuple[list[_Sequence], list[bool], _Origin]
"""The sequences of this rank in a step, which of them come again, and where the next step begins."""


@public("lading.pack")
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
    window: int | None = None,
    keep: Sequence[str] = (),
    image_token: int | None = None,
    image_tokens: Callable[[int, int], int] | None = None,
    too_long: TooLong = "error",
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

    A step takes the next `batch_size` sequences for each rank, so sequences do not depend on the number of ranks. All
    ranks have as many batches, and a state goes on with any number. To that end each rank reads and tokenizes all
    documents. It reads and decodes columns of `keep` for its own sequences alone, unless the loader has functions of
    yours or skips samples. Where the last step has a sequence for some ranks alone, others have one of them again: the
    column `__padding__` says so, as in batches of the loader. With `last="drop"` in the loader the step is left out.

    With `image_tokens` images become tokens too. A batch then has the column `images`: for each sequence the list of
    its documents' images, in the order of their tokens. Of interleaved documents texts and images have the order of
    their items. Of samples the images come before the text. Each text is tokenized by itself.

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
        window: of `best-fit`: documents are placed when they make up so many sequences. By default 128.
        keep: of `best-fit`: columns of the loader that a batch has too, such as images or keys: for each sequence the
            list of the values of its documents, in the order of their segments.
        image_token: of `best-fit`: id that stands for images, each time as often as `image_tokens` says.
        image_tokens: of `best-fit`: a function of height and width that returns the number of tokens of an image. It
            is given the size that batches have, behind `image_size`; of images that are not decoded, that of the file
            as viewers show it. An image of 0 tokens is left out, and counted.
        too_long: with `keep` or `image_tokens` documents stay whole. For one that is longer than a sequence: `error`;
            `cut`, which keeps the beginning with whole images; or `skip`, which leaves it out. `counts` says how many.

    Raises:
        UsageError: an argument is wrong, or a batch of the loader lacks the column.
        DataError: a document must stay whole, and is longer than a sequence; or a text has the token of images.
    """
    _refuse_other_loader(loader)
    if method not in ("split", "best-fit"):
        raise UsageError("no such way to pack", expected="split or best-fit", found=repr(method))
    placed = _WINDOW if window is None else window
    length, batch_size, placed = (
        whole_number(name, size, 1)
        for name, size in (("length", length), ("batch_size", batch_size), ("window", placed))
    )
    pad, end = whole_number("pad", pad), None if end is None else whole_number("end", end)
    if isinstance(keep, str) or {*keep} & {*_MADE}:
        raise UsageError("keep is a list of other columns than those that are made", found=repr(keep))
    if keep and method == "split":
        raise UsageError("columns are kept of whole documents", expected='method="best-fit"', found='method="split"')
    if window is not None and method == "split":
        raise UsageError("only best-fit has a window", found=f'window={window} with method="split"',
                         advice='Leave window out, or use method="best-fit".')  # fmt: skip
    images = _image_tokens(loader, image_token, image_tokens, tokenizer)
    if images is not None and method == "split":
        raise UsageError("images become tokens of whole documents", expected='method="best-fit"',
                         found='method="split"')  # fmt: skip
    whole = bool(keep) or images is not None
    _refuse_wrong_too_long(too_long, whole=whole)
    texts = DocumentTokens(tokenizer, column, end, keep, images, length if whole else None, too_long)
    if loader.recipe.collate == "torch" or "torch" in sys.modules:
        from torch.utils.data import IterableDataset

        IterableDataset.register(Packer)  # so that DataLoader takes it as such
    settings = _Settings(method, length, end, placed, image_token, too_long)
    return Packer(loader, settings, texts, pad, batch_size)


def _image_tokens(
    loader: Loader, token: int | None, count: Callable[[int, int], int] | None, tokenizer: Any
) -> ImageTokens | None:
    """Return how images become tokens, if the user says so."""
    if token is None and count is None:
        return None
    if type(token) is not int or not callable(count):
        raise UsageError("image_token and image_tokens go together, an id and a function of height and width",
                         found=f"image_token={token!r}, image_tokens={count!r}"[:200],
                         expected="such as image_token=32000, image_tokens=lambda height, width: 256")  # fmt: skip
    if tokenizer is None:
        raise UsageError("images become tokens beside texts, which take a tokenizer", expected="tokenizer=…",
                         found="no tokenizer",
                         advice="Where a column has token ids, those of images are among them.")  # fmt: skip
    return ImageTokens.of_loader(loader, token, count)


def _refuse_wrong_too_long(too_long: TooLong, *, whole: bool) -> None:
    if too_long not in get_args(TooLong):
        raise UsageError("no such way to treat long documents", expected="error, cut or skip", found=repr(too_long))
    if too_long != "error" and not whole:
        raise UsageError("documents do not stay whole: long ones take several sequences", expected="keep=[…]",
                         found=f"too_long={too_long!r}", advice="Leave too_long out.")  # fmt: skip


def _refuse_other_loader(loader: object) -> None:
    if not isinstance(loader, Loader):
        raise UsageError("pack takes a loader of lading's", expected="lading.loader(…)", found=type(loader).__name__)
    if loader.by_size:
        raise UsageError("packed sequences have one length, and need no batches by size",
                         found="a loader of batches by size",
                         advice="Leave batch_tokens, batch_pixels and bucket_by out of the loader, and give it one "
                         "image_size.")  # fmt: skip


class Packer:
    """Gives batches of packed sequences; made by `lading.pack`. A `for` loop is one epoch of the loader.

    A loop that ends early (`break`) leaves its epoch: the next loop gives the next one.

    Attributes:
        counts: what was reported so far, by a short phrase.
    """

    def __init__(self, loader: Loader, settings: _Settings, texts: DocumentTokens, pad: int, batch_size: int) -> None:
        self._share, self._settings, self._texts = loader.share_of(loader.epoch), settings, texts
        self._refuse_other_ranks = loader.refuse_other_ranks
        loader.refuse_reports("lading.pack")
        columns, self._kept = texts.columns_among(loader.separate_columns)
        self._keeps_later = bool(columns) and texts.reads_later and self._share.world_size > 1
        if self._keeps_later:
            self._loader = loader.alone(columns, 2, decodes=False)
        else:
            self._loader = loader.alone(list(dict.fromkeys([*columns, *self._kept])))
        self._pad, self._batch_size = pad, batch_size
        self._recipe = loader.recipe
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
        torch = sys.modules.get("torch.utils.data")
        if torch is not None and torch.get_worker_info() is not None:
            raise UsageError("sequences are packed in the process of the loop", expected="DataLoader(…, num_workers=0)",
                             advice="Let processes make the texts: lading.loader(…, workers=2).")  # fmt: skip
        self._refuse_other_ranks()
        begin, self._resumed = self._resumed, None
        if begin is None and self._looping is not None:  # the loop before ended early
            self._loader.set_epoch(self._looping + (self._origin is not None))
            self._origin = None
        self._looping = self._loader.epoch
        begin = begin or _Origin(self._loader.state_dict(), 0)
        settings, documents = self._settings, self._documents(begin.documents)
        if settings.method == "split":
            sequences = _split(documents, settings.length, begin.given)
        else:
            sequences = _fitted(documents, settings, begin.given, whole=bool(self._texts.keep))
        steps = self._steps(sequences)
        for rows, again, origin in self._with_kept(steps) if self._keeps_later else steps:
            self._origin = origin
            yield self._made(rows, again)
        self._origin = self._looping = None

    def __len__(self) -> int:
        """Raise TypeError: nothing knows how many sequences there are before the last document is tokenized."""
        raise TypeError(
            "packed sequences have no length: their number is known when the last document is packed. Count steps, "
            "which are as many on all ranks"
        )

    def __bool__(self) -> bool:
        return True

    def _steps(self, sequences: Iterator[_Sequence]) -> Iterator[_Step]:
        ranks, each = self._share.world_size, self._batch_size
        while step := [*islice(sequences, ranks * each)]:
            if self._share.last == "drop" and len(step) < ranks * each:
                return
            yield *self._of_rank(step), step[-1][2]

    def _with_kept(self, steps: Iterator[_Step]) -> Iterator[_Step]:
        """The steps with the kept values instead of positions: read ahead, for sequences of this rank alone."""
        ahead = deque[_Step]()

        def positions() -> Iterator[NDArray[np.int64]]:
            for step in steps:
                ahead.append(step)
                yield np.array([position for _, kept, _ in step[0] for position in kept], np.int64)

        assert self._looping is not None, "the loop has begun"
        step_bytes = 8 * self._batch_size * self._settings.length
        for batch in self._loader.batches_at(self._looping, self._kept, self._recipe, positions(), step_bytes):
            rows, again, origin = ahead.popleft()
            values, match = self._texts.kept_in(columns_in(batch)), self._texts.matched
            with_values = [(pieces, [match(ids, next(values)) for ids in pieces], after) for pieces, _, after in rows]
            yield with_values, again, origin

    def _of_rank(self, step: list[_Sequence]) -> tuple[list[_Sequence], list[bool]]:
        """The sequences of this rank in a step, and which of them come again."""
        share = self._share
        places = [*range(share.rank, len(step), share.world_size)]
        wanted = self._batch_size if share.last == "pad" else 1  # no rank may lack the step
        again = [i % len(step) for i in range(share.rank, share.rank + wanted - len(places))]
        return [step[i] for i in places + again], [False] * len(places) + [True] * len(again)

    def state_dict(self) -> dict[str, Any]:
        """Where the next sequence begins: a small dict of what JSON has, and no tokens. The same on every rank.

        It holds the state of the loader before the first document that is not yet packed as a whole. Inside of a loop,
        the batch that the loop was given last counts as used.
        """
        origin = self._origin or self._resumed or _Origin(self._loader.state_dict(), 0)
        return {
            **self._fixed_state(),
            "documents": origin.documents,
            "given": origin.given,
            "loader": origin.loader,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next loop go on where `state_dict` was made, with any number of ranks and any batch size.

        The tokenizer must be the same. The data may have changed (`on_changed="keys"` of the loader) at the begin of an
        epoch only: sequences of other documents would not be the same.

        Raises:
            UsageError: it is no state, or one of other settings, of other data or of another order; the error names
                what differs.
        """
        mine = self.state_dict()
        if isinstance(state, Mapping) and (state.get("version"), state.get("world_size")) == (_OF_EACH_RANK, 1):
            state = {**state, "version": _VERSION}
        missing = [name for name in mine if name not in state] if isinstance(state, Mapping) else [*mine]
        if missing:
            raise UsageError("this is no state of packed sequences", expected=f"a dict with {', '.join(mine)}",
                             found=f"{', '.join(missing[:3])} missing")  # fmt: skip
        for name, value in self._fixed_state().items():
            if state[name] != value:
                raise UsageError(
                    f"the state belongs to other sequences: {name} differs", expected=repr(value),
                    found=repr(state[name]),
                    advice="Pack with the same settings.",
                )  # fmt: skip
        for name in ("documents", "given"):
            if type(state[name]) is not int or state[name] < 0:
                raise UsageError(f"the {name} of the state are no such number", found=repr(state[name]))
        began = state["documents"] or state["given"] or state["loader"].get("position")
        if began and self._loader.is_changed_since(state["loader"]):
            raise UsageError("the data changed in an epoch of packed sequences", found="a state of other data",
                             advice="Go on with the data of the state to the end of the epoch.")  # fmt: skip
        self._loader.load_state_dict(state["loader"])
        self._resumed = _Origin(dict(state["loader"]), state["documents"], state["given"])
        self._origin = self._looping = None

    def _fixed_state(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "version": _VERSION,
            "method": settings.method,
            "length": settings.length,
            "end": settings.end,
            "window": settings.window if settings.method == "best-fit" else None,
            **({} if settings.image_token is None else {"image_token": settings.image_token}),
            **({} if settings.too_long == "error" else {"too_long": settings.too_long}),
        }

    def _documents(self, skipped: int) -> Iterator[_Document]:
        """The documents of the loader that have tokens, without the first ones."""
        batches = iter(self._loader)
        after = self._loader.state_dict()
        for batch in batches:
            before, after = after, self._loader.state_dict()
            first = before["position"] if self._keeps_later else None
            found = self._texts.documents(batch, self.counts, first)
            places = [i for i in range(skipped, len(found)) if len(found[i][0])]
            skipped = max(skipped - len(found), 0)
            origins = [*(_Origin(before, i) for i in places), _Origin(after, 0)]
            for i, origin, next_one in zip(places, origins, origins[1:], strict=False):
                yield _Document(*found[i], origin, next_one)

    def _made(self, batch: list[_Sequence], again: list[bool]) -> dict[str, Any]:
        """The columns of a batch, and which of its sequences come again, where some may."""
        shape = (len(batch), self._settings.length)
        tokens, positions, segments = np.full(shape, self._pad), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, (pieces, _, _) in enumerate(batch):
            sizes = np.array([len(ids) for ids in pieces])
            end = int(sizes.sum())
            tokens[row, :end] = np.concatenate(pieces)
            positions[row, :end] = np.arange(end) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            segments[row, :end] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        made = [*zip(_MADE, (tokens, positions, segments), strict=True)]
        if self._share.pads:
            made.append((PADDING, np.array(again)))
        kept = {name: [[each[i] for each in row[1]] for row in batch] for i, name in enumerate(self._texts.keep)}
        return {name: collated(values, torch=self._recipe.collate == "torch") for name, values in made} | kept

    def __repr__(self) -> str:
        ranks = f"rank {self._share.rank} of {self._share.world_size}, " if self._share.world_size > 1 else ""
        return f"Packer({self._settings.method}, length {self._settings.length:,}, {ranks}of {self._loader!r})"


def _split(documents: Iterator[_Document], length: int, used: int) -> Iterator[_Sequence]:
    """Cut documents, one after the other, into sequences; the first tokens were used before."""
    pieces, room = list[Ids](), length
    for document in documents:
        ids, begin = document.ids, min(used, len(document.ids))
        used -= begin
        while begin < len(ids):
            pieces.append(ids[begin : begin + room])
            begin += len(pieces[-1])
            room -= len(pieces[-1])
            if not room:
                yield pieces, [], document.after if begin == len(ids) else document.origin._replace(given=begin)
                pieces, room = [], length
    if pieces:
        yield pieces, [], document.after


def _fitted(documents: Iterator[_Document], settings: _Settings, given: int, *, whole: bool) -> Iterator[_Sequence]:
    """Place documents into sequences, a window at a time; the first sequences were given before.

    Raises:
        DataError: a document is longer than a sequence, and must stay whole.
    """
    length, most = settings.length, settings.window * settings.length
    while held := [*_window(documents, most)]:
        longest = max(len(each.ids) for each in held)
        if whole and longest > length:
            raise DataError(
                "a document is longer than a sequence, and its kept values cannot be cut",
                expected=f"at most {length:,} tokens", found=f"{longest:,}",
                advice='Say what is done: too_long="cut" keeps its beginning, too_long="skip" leaves it out. Or pack '
                "longer sequences.",
            )  # fmt: skip
        pieces = [(each, begin) for each in held for begin in range(0, len(each.ids), length)]
        rows = _placed([min(len(each.ids) - begin, length) for each, begin in pieces], length)
        for number, row in enumerate(rows[given:], given + 1):
            after = held[-1].after if number == len(rows) else held[0].origin._replace(given=number)
            mine = [pieces[i] for i in row]
            yield [each.ids[begin : begin + length] for each, begin in mine], [each.kept for each, _ in mine], after
        given = 0


def _window(documents: Iterator[_Document], most: int) -> Iterator[_Document]:
    """The next documents, until they have so many tokens."""
    while most > 0 and (document := next(documents, None)) is not None:
        yield document
        most -= len(document.ids)


def _placed(sizes: Sequence[int], length: int) -> list[list[int]]:
    """The pieces of each sequence, by number; sequences in the order of their first pieces.

    Pieces are placed from the longest to the shortest, each into the sequence with the least room that is enough.

    Source: H. Ding et al., "Fewer Truncations Improve Language Modeling" (2024).
    """
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    for piece in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        place = bisect_left(rooms, (sizes[piece], -1))
        if place == len(rooms):
            room, row = length, len(rows)
            rows.append([])
        else:
            room, row = rooms.pop(place)
        rows[row].append(piece)
        if room > sizes[piece]:
            insort(rooms, (room - sizes[piece], row))
    return sorted(map(sorted, rows))
