"""Undo mends of the history, and see whether `make test` notices: what the tests that it runs are worth.

python undone_mends.py draw            the mends, by stratum and group
python undone_mends.py run GROUP       undo a group in a copy, run the tests of `make test`, name the tests that fail
python undone_mends.py soak MEND       undo one mend, and run its own tests as `make soak` does

A mend is a commit that changes tests and at most 120 lines in six modules, whose changes to the modules can still be
undone. `SKIPPED` holds those that were drawn and tell nothing: undone, they change no behaviour, or all of it.
Each stratum is shuffled by `SEED`, and the first mends are taken. Mends of a group change no module together.

A test counts for a mend if it passes on the tree as it is, and fails with this mend alone undone. The exit status is 1
if a mend of the group is not noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEED = 44
LAST = "0a60cefc"
"""The mends are drawn from the history up to this commit."""
GROUPS = 4
STRATA = {
    "formats": (6, "formats features arrow caches interleaved content media codecs"),
    "dataset": (4, "dataset pipeline options.py"),
    "jobs": (6, "jobs cli processes __init__.py"),
    "storage": (5, "storage manifest"),
    "train": (3, "train compat"),
}
"""How many mends of each, and its packages."""
SKIPPED = {
    "999b160a": "writes faster; the same bytes",
    "c2f0c33e": "wraps a line of a docstring",
    "51b57e0b": "wraps a line of a docstring",
    "41989a52": "moves functions that later modules import: without it lading cannot be imported",
}
_MOST_LINES, _MOST_MODULES = 120, 6
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::[^\[\s]+(?:\[.*?\])?)?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mend:
    """A commit: its modules, and the patch of them."""

    commit: str
    subject: str
    modules: frozenset[str]
    patch: str


def git(*words: str, root: Path = ROOT, stdin: str | None = None) -> str:
    run = subprocess.run(["git", "-C", str(root), *words], input=stdin, capture_output=True, text=True, check=True)
    return run.stdout


@contextmanager
def last_tree() -> Iterator[dict[str, str]]:
    """Give the environment in which git sees the tree of `LAST` as its index."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        subprocess.run(["git", "-C", str(ROOT), "read-tree", LAST], env=environment, check=True)
        yield environment


def can_be_undone(patch: str, environment: dict[str, str]) -> bool:
    words = ["git", "-C", str(ROOT), "apply", "--cached", "--reverse", "-C1", "--check", "-"]
    run = subprocess.run(words, input=patch, capture_output=True, text=True, check=False, env=environment)
    return not run.returncode


def mends(environment: dict[str, str]) -> Iterator[tuple[str, Mend]]:
    """Yield the stratum and each mend, newest first."""
    strata = {package: name for name, (_, packages) in STRATA.items() for package in packages.split()}
    for line in git("log", "--no-merges", "--format=%h %s", "--abbrev=8", LAST).splitlines():
        commit, _, subject = line.partition(" ")
        counts = [row.split("\t") for row in git("show", "--numstat", "--format=", commit).splitlines()]
        modules = [(path, int(a) + int(b)) for a, b, path in counts if re.match(r"src/lading/.*\.py$", path)]
        if not modules or len(modules) > _MOST_MODULES or sum(n for _, n in modules) > _MOST_LINES:
            continue
        if not any(path.startswith("tests/") for *_, path in counts):
            continue
        patch = git("show", "--format=", commit, "--", "src/lading")
        [(package, _)] = Counter(path.split("/")[2] for path, _ in modules).most_common(1)
        if package in strata and can_be_undone(patch, environment):
            yield strata[package], Mend(commit, subject, frozenset(path for path, _ in modules), patch)


def drawn() -> list[list[Mend]]:
    """Return the mends in groups that share no module."""
    by_stratum: dict[str, list[Mend]] = {name: [] for name in STRATA}
    with last_tree() as environment:
        for stratum, mend in mends(environment):
            by_stratum[stratum].append(mend)
    rng, chosen = random.Random(SEED), list[Mend]()
    for name, (count, _) in STRATA.items():
        found = sorted(by_stratum[name], key=lambda mend: mend.commit)
        rng.shuffle(found)
        chosen += [mend for mend in found if mend.commit not in SKIPPED][:count]
    groups: list[list[Mend]] = [[] for _ in range(GROUPS)]
    for mend in chosen:
        free = [group for group in groups if not any(mend.modules & other.modules for other in group)]
        min(free, key=len).append(mend)
    return groups


@contextmanager
def undone(*mends: Mend) -> Iterator[Path]:
    """Give a copy of the tree in which mends are undone."""
    with tempfile.TemporaryDirectory(prefix="undone-") as folder:
        copy = Path(folder, "lading")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache"))
        git("init", "--quiet", root=copy)
        for mend in mends:
            git("apply", "--reverse", "-C1", "-", root=copy, stdin=mend.patch)
        yield copy


def failed(copy: Path, *words: str) -> list[str]:
    """Run tests of a copy by the environment of this tree; return the names of those that fail."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}/src", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", *words]
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    found = [*dict.fromkeys(_FAILED.findall(run.stdout))]
    if run.returncode not in (0, 1, 5) or (run.returncode == 1 and not found):
        sys.exit(run.stdout[-3000:] + run.stderr[-3000:])
    return found


def run_group(number: int) -> bool:
    group = drawn()[number]
    with undone(*group) as copy:
        names = failed(copy, "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder")
    print(f"group {number}: {len(names)} tests fail with {len(group)} mends undone", flush=True)
    noticed = True
    if names:
        with undone() as copy:
            broken = failed(copy, *names)
        names = [name for name in names if name not in broken]
    for mend in group:
        found = []
        if names:
            with undone(mend) as copy:
                found = failed(copy, *names)
        noticed = noticed and bool(found)
        print(f"{mend.commit} {mend.subject}")
        print(f"    {len(found)} tests: {found[0]}" if found else "    NOT NOTICED", flush=True)
    return noticed


def soak(commit: str) -> bool:
    [mend] = [mend for group in drawn() for mend in group if mend.commit == commit]
    files = [path for path in git("show", "--name-only", "--format=", commit).split() if "/test_" in path]
    there = [path for path in files if (ROOT / path).exists()]
    os.environ["LADING_FUZZ"] = "100"
    with undone(mend) as copy:
        found = failed(copy, "-n", "2", *there)
    print(f"{commit} {mend.subject}", *found, sep="\n    ")
    return bool(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["draw", "run", "soak"])
    parser.add_argument("which", nargs="?", default="")
    args = parser.parse_args()
    if args.what == "draw":
        for number, group in enumerate(drawn()):
            print(f"group {number}", *(f"  {mend.commit} {mend.subject}" for mend in group), sep="\n")
    else:
        sys.exit(not (run_group(int(args.which)) if args.what == "run" else soak(args.which)))


if __name__ == "__main__":
    main()
