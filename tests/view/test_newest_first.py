"""Turns: so many at once, the newest next, none is lost where one that waits is given up."""

from __future__ import annotations

import asyncio

from lading._core.view.newest_first import NewestFirst


def test_the_newest_is_next() -> None:
    async def run() -> list[int]:
        turns, done, go = NewestFirst(2), list[int](), asyncio.Event()

        async def work(number: int) -> None:
            async with turns:
                done.append(number)
                await go.wait()

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await asyncio.sleep(0)
        assert done == [0, 1]
        tasks[4].cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with turns, turns:  # both are free again
            return done

    assert asyncio.run(run()) == [0, 1, 5, 3, 2]
