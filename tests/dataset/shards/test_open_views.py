"""Open shards, in the order of their use."""

from __future__ import annotations

import lading
from golden_cases import Golden
from lading._core.dataset.shards.open_views import OpenViews


def test_shards_are_given_away_from_the_least_recently_used(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        view = dataset._rows.shards.open_shard(0)
        kept = OpenViews()
        for shard in (3, 1, 2):
            kept.add(shard, view)
        assert kept.get(3) is view
        assert kept.peek(1) is view
        assert kept.pop(9) is None
        assert [kept.pop_oldest() for _ in range(len(kept))] == [1, 2, 3]
        assert kept.get(3) is None


def test_many_shards_are_full_by_the_memory_that_they_take(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        view = dataset._rows.shards.open_shard(0)
        assert view.held_bytes
        most = (128 << 20) // view.held_bytes
        kept = OpenViews()
        for shard in range(most):
            kept.add(shard, view)
        assert not kept.is_full
        kept.add(most, view)
        assert kept.is_full
        kept.pop_oldest()
        assert not kept.is_full
