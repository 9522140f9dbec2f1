"""Run the benches.

python run.py --data FOLDER [--cases 'read*,index*'] [--ways 'lading*'] [--reps 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import arrow_build_cases
import arrow_cases
import cond_cases
import digest_cases
import interleaved_cases
import keys_cases
import loader_cases
import look_cases
import maps_cases
import mds_cases
import media_cases
import order_cases
import sql_cases
import stats_cases
import tar_cases
from harness import Case, Place, measure_here, run_case

_GROUPS = (
    tar_cases,
    cond_cases,
    interleaved_cases,
    mds_cases,
    arrow_cases,
    arrow_build_cases,
    media_cases,
    digest_cases,
    keys_cases,
    stats_cases,
    sql_cases,
    look_cases,
    order_cases,
    maps_cases,
    loader_cases,
)
_CASES = {case.name: case for group in _GROUPS for case in group.CASES}
_PACKAGES = ("lading", "pyarrow", "numpy", "webdataset", "nemo-curator", "mosaicml-streaming", "datasets", "datatrove")
_COLUMNS = ("way", "seconds", "samples/s", "MB/s", "× peer", "of limit", "peak MB", "own MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="what corpora.py made")
    parser.add_argument("--cases", default="*", help="patterns of names, by commas")
    parser.add_argument("--ways", default="*", help="likewise")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--json", help="file to which a line a way is added")
    parser.add_argument("--once", nargs=2, metavar=("CASE", "WAY"), help="one measurement, in this process")
    parser.add_argument("--out", help="with --once: an empty folder for outputs")
    args = parser.parse_args()
    if args.once:
        name, way = args.once
        print(json.dumps(measure_here(_CASES[name], way, Place(args.data, args.out))))
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {_version(name)}" for name in _PACKAGES))
    for case in _chosen(args.cases, args.ways):
        results = list(_run(case, args.data, args.reps))
        _print_table(case, results)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(result) + "\n" for result in results)
        if len({(r["samples"], r["payload_bytes"]) for r in results if "seconds" in r}) > 1:
            sys.exit(f"{case.name}: the ways did not do the same")


def _chosen(cases: str, ways: str) -> list[Case]:
    def wanted(name: str, patterns: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))

    chosen = [case for case in _CASES.values() if wanted(case.name, cases)]
    kept = [{name: way for name, way in case.ways.items() if wanted(name, ways)} for case in chosen]
    return [replace(case, ways=some) for case, some in zip(chosen, kept, strict=True)]


def _run(case: Case, data: str, repeats: int) -> list[dict]:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="lading-bench-", dir=memory) as folder:
        out = os.path.join(folder, "out")
        command = [sys.executable, os.path.abspath(__file__), "--data", data, "--out", out, "--once"]
        return list(run_case(case, Place(data, out), repeats, command))


def _print_table(case: Case, results: list[dict]) -> None:
    print(f"\n**{case.name}** (peer: {case.peer}, limit: {case.limit})\n")
    print("| " + " | ".join(_COLUMNS) + " |\n" + "|---" * len(_COLUMNS) + "|")
    for result in results:
        if "seconds" not in result:
            print(f"| {result['way']} | {result.get('skipped') or result.get('failed')} |" + " |" * (len(_COLUMNS) - 2))
            continue
        spread = f"{result['seconds']:.3g} ({min(result['seconds_all']):.3g}–{max(result['seconds_all']):.3g})"
        rates = (f"{result['samples_s']:,}", f"{result['mb_s']:,.0f}")
        ratios = (f"{result.get('times_peer', '–')}", f"{result.get('of_limit', '–')}")
        memory = (str(result["peak_rss_mb"]), str(result["peak_own_mb"]))
        print("| " + " | ".join((str(result["way"]), spread, *rates, *ratios, *memory)) + " |", flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
