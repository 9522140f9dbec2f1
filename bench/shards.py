"""What a shard costs: time each verb over many shards of one small sample.

python shards.py [--shards 5000] [--verbs index,verify] [--to parquet] [--calls]

Each verb runs in a fresh process, with an empty cache of indexes, and its time is divided by the number of shards:
wall-clock time, and the time of the process and its children on the processor. `split` is `convert` into one shard a
sample. With `--calls` each verb runs over two sizes instead, and the script prints what one more shard adds: calls of
functions of lading, and opened files by their kinds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

VERBS = ("convert", "split", "index", "verify", "info", "len")
_FEW, _MORE = 100, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=5000)
    parser.add_argument("--verbs", default=",".join(VERBS), help="by commas")
    parser.add_argument("--to", default="parquet", help="the format that convert writes")
    parser.add_argument("--folder", help="where to work; by default, a temporary folder")
    parser.add_argument("--calls", action="store_true", help="count calls and opens instead of taking times")
    parser.add_argument("--once", nargs=2, metavar=("VERB", "FOLDER"), help="one measurement, in this process")
    args = parser.parse_args()
    if args.once:
        print(json.dumps(measure(*args.once, args.to, calls=args.calls)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        sizes = (_FEW, _MORE) if args.calls else (args.shards,)
        sources = [make_shards(os.path.join(folder, f"source-{count}"), count) for count in sizes]
        for verb in args.verbs.split(","):
            found = [in_fresh_process(verb, source, args) for source in sources]
            if args.calls:
                print_calls(verb, *found)
            else:
                wall, cpu = (found[0][name] / args.shards * 1000 for name in ("seconds", "cpu_s"))
                print(f"{verb:8} {wall:8.2f} ms a shard, {cpu:8.2f} ms on the processor", flush=True)


def make_shards(folder: str, count: int) -> str:
    os.makedirs(folder)
    for shard in range(count):
        with tarfile.open(os.path.join(folder, f"{shard:05d}.tar"), "w") as tar:
            for field, value in (("jpg", b"\xff\xd8" + bytes(2000)), ("json", b'{"a": 1}'), ("txt", b"a text")):
                info = tarfile.TarInfo(f"{shard:06d}.{field}")
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    return folder


def in_fresh_process(verb: str, source: str, args: argparse.Namespace) -> dict:
    out = f"{source}-out"
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    command = [sys.executable, os.path.abspath(__file__), "--once", verb, source, "--to", args.to]
    environment = {**os.environ, "LADING_CACHE": os.path.join(out, "cache")}
    run = subprocess.run(
        [*command, *(["--calls"] if args.calls else [])], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def work_of(verb: str, source: str, to: str) -> Callable[[], object]:
    import lading

    if verb in {"convert", "split"}:
        size = {"shard_size": 1000} if verb == "split" else {}
        return lambda: lading.convert(source, f"{source}-out/made", format=to, **size)
    if verb == "len":
        dataset = lading.open(source)
        return lambda: len(dataset)
    return lambda: getattr(lading, verb)(source)


def measure(verb: str, source: str, to: str, *, calls: bool) -> dict:
    import lading

    for path in Path(source).iterdir():  # what is timed reads from the page cache
        path.read_bytes()
    work = work_of(verb, source, to)
    called: Counter[str] = Counter()
    lead = str(Path(str(lading.__file__)).parent) + os.sep

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(lead) and frame.f_lasti <= 0:
            called[f"{code.co_filename[len(lead) :]}:{code.co_qualname}"] += 1

    if calls:
        sys.addaudithook(lambda event, seen: called.update([kind_of(seen[0])] if event == "open" else []))
        called.clear()
        threading.setprofile(note)
        sys.setprofile(note)
    begun, cpu = time.perf_counter(), cpu_s()
    work()
    seconds, cpu = time.perf_counter() - begun, cpu_s() - cpu
    sys.setprofile(None)
    return {"seconds": seconds, "cpu_s": cpu, "called": called}


def cpu_s() -> float:
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in use)


def kind_of(path: object) -> str:
    return f"open of {os.path.splitext(str(path))[1] or 'a folder'}"


def print_calls(verb: str, few: dict, more: dict) -> None:
    added = {name: (count - few["called"].get(name, 0)) / (_MORE - _FEW) for name, count in more["called"].items()}
    opens = {name: count for name, count in added.items() if name.startswith("open of ")}
    calls = {name: count for name, count in added.items() if name not in opens and count >= 0.5}
    print(
        f"\n{verb}: {sum(calls.values()):.0f} calls of {len(calls)} functions, {sum(opens.values()):.1f} opens a shard"
    )
    for name, count in sorted((opens | calls).items(), key=lambda pair: -pair[1]):
        if count >= 0.05:
            print(f"  {count:8.1f}  {name}")


if __name__ == "__main__":
    main()
