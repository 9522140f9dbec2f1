"""The ranks of a step share its samples; all have the same number of batches."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lading._core.train.share import Last, Share

_LASTS = st.sampled_from(["short", "pad", "drop"])


@given(n=st.integers(0, 60), batch=st.integers(1, 7), world=st.integers(1, 8), last=_LASTS, start=st.integers(0, 60))
def test_ranks_have_each_sample_once_in_as_many_batches(n: int, batch: int, world: int, last: Last, start: int) -> None:
    shares = [Share(n, batch, last, rank, world) for rank in range(world)]
    [steps] = {share.num_batches(start) for share in shares}
    given = [share.positions(start, steps) for share in shares]
    real = sorted(p for p in chain.from_iterable(np.concatenate([*each, []]).tolist() for each in given) if p < n)
    whole = (n - start) // (batch * world) * batch * world if last == "drop" else n - start
    assert real == [*range(start, start + max(whole, 0))]
    padded = any((positions >= n).any() for each in given for positions in each)
    assert shares[0].pads or not padded
    if last != "short":
        assert all(len(positions) == batch for each in given for positions in each)
    assert all(len(positions) for each in given for positions in each)
    assert shares[0].after(start, steps) == (start + max(whole, 0) if start <= n else n)


@given(n=st.integers(0, 60), world=st.integers(1, 4), cut=st.integers(0, 5))
def test_steps_do_not_depend_on_how_many_share_them(n: int, world: int, cut: int) -> None:
    """The samples of a step of 12 are the same for one rank with batches of 12 and for four with batches of 3."""
    size = 12 // world
    one, many = Share(n, size * world), [Share(n, size, "short", rank, world) for rank in range(world)]
    for step, positions in enumerate(one.positions(cut, one.num_batches(cut))):
        shared = np.concatenate([each.positions(cut, each.num_batches(cut))[step] for each in many])
        assert sorted(p for p in shared.tolist() if p < n) == positions.tolist()
