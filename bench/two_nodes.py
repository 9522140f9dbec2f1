"""Convert on a cluster of two Ray nodes on this machine: how fast, and the same bytes though a node dies.

python two_nodes.py [--mb 400] [--tasks 200] [--repeats 3] [--kills 20] [--seed 0]

First, a conversion with two local workers and one on the cluster take turns; the medians of their seconds are compared.
Then a node is killed at a random moment of each of many conversions, and another node joins. The files must be those
of two local workers, byte by byte, and nothing else may be beside them.

The exit status is 1 if a file differs, something is left, or more than one task was begun again for a death.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import lading
from kill_jobs import Attempts, Place, make_source
from lading._core.jobs.convert import schedule, tasks
from lading._core.storage.stores import Stores

_CORES = 1
_STORE_BYTES = 80 << 20
_LOOK_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=400, help="size of the source")
    parser.add_argument("--tasks", type=int, default=200, help="about so many tasks")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to work; by default, a temporary folder")
    args = parser.parse_args()
    tasks.ALONE_BYTES = schedule._QUICK_BYTES = 0  # noqa: SLF001 - several tasks and workers, however small the source is
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        os.environ.update(HOME=folder, RAY_AUTH_MODE="disabled", LADING_CACHE=f"{folder}/cache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        with redirect_stdout(sys.stderr):
            status = _on_two_nodes(args, folder)
    sys.exit(status)


def _on_two_nodes(args: argparse.Namespace, folder: str) -> int:
    import ray
    from ray.cluster_utils import Cluster

    source, place = make_source(folder, "tars", args.mb * 1_000_000, args.tasks), Place(f"{folder}/results", Stores())
    node: dict[str, Any] = {"num_cpus": _CORES, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    second = cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    how = {"format": "parquet", "shard_size": args.mb * 1_000_000 // args.tasks, "progress": False}
    try:
        expected = _compare_speed(args.repeats, source, place, how)
        problems = 0
        for number in range(args.kills):
            chance = random.Random(f"{args.seed}-{number}")
            name, seen, done = f"killed-{number}", Attempts(), threading.Event()
            killer = threading.Thread(target=_kill, args=(cluster, second, chance.uniform(0, expected[1]), done))
            watcher = threading.Thread(target=_watch, args=(seen, place, name, done))
            killer.start()
            watcher.start()
            try:
                lading.convert(source, f"{place.of(name)}/out", executor="ray", **how)
            finally:
                done.set()
                killer.join()
                watcher.join()
            second = cluster.add_node(**node)
            cluster.wait_for_nodes()
            found = place.files(name)
            wrong = [each for each in found.keys() | expected[0].keys() if found.get(each) != expected[0].get(each)]
            problems += bool(wrong) or seen.again > _CORES
            outcome = f"other files: {wrong[:3]}" if wrong else "identical"
            _say(f"  node killed, {number}: {seen.again} tasks begun again: {outcome}")
            place.remove(name)
        _say(f"{args.kills} nodes killed, {args.kills - problems} conversions identical, with at most one task again")
        return int(problems > 0)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _compare_speed(repeats: int, source: str, place: Place, how: dict[str, Any]) -> tuple[dict[str, bytes], float]:
    """Print how fast the cluster is; return the files of a conversion by local workers, and seconds on the cluster."""
    ways: dict[str, dict[str, Any]] = {"2 local workers": {"workers": 2}, "2 Ray nodes": {"executor": "ray"}}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    expected: dict[str, bytes] = {}
    for repeat in range(repeats + 1):
        for way, more in ways.items():
            began = time.perf_counter()
            done = lading.convert(source, f"{place.of(way)}/out", **how, **more)
            if repeat:  # the first time, processes of Ray start
                seconds[way].append(time.perf_counter() - began)
            found = place.files(way)
            expected = expected or found
            assert found == expected, f"{way} wrote other files"
            place.remove(way)
    medians = [statistics.median(each) for each in seconds.values()]
    for way, all_seconds in seconds.items():
        _say(f"{way:16} {done.tasks} tasks: {statistics.median(all_seconds):.2f} s")
    _say(f"speed of Ray: {medians[0] / medians[1]:.2f} of local workers")
    return expected, medians[1]


def _say(text: str) -> None:
    """Print a result. What Ray prints goes to standard error."""
    print(text, file=sys.__stdout__, flush=True)


def _kill(cluster: Any, node: Any, moment: float, done: threading.Event) -> None:
    """Kill a node after some seconds, or when the conversion has ended."""
    done.wait(moment)
    cluster.remove_node(node, allow_graceful=False)


def _watch(seen: Attempts, place: Place, name: str, done: threading.Event) -> None:
    while not done.wait(_LOOK_S):
        if Path(place.of(name)).exists():
            seen.look(place, name)


if __name__ == "__main__":
    main()
