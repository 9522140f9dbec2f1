"""Read hostile cases one after another, in a process that `hostile.py` watches: `python hostile_child.py READER.py`.

Says when it is ready, then takes a case folder a line on standard input and answers each with a line of JSON. Only
lading's own errors are caught; anything else ends the process, and is judged by its traceback.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
from pathlib import Path

from golden_cases import load_spec
from lading.errors import LadingError

_MEMORY_BYTES = 4 << 30  # a bomb must not take the machine down


def main() -> None:
    read_case = runpy.run_path(sys.argv[1])["read_case"]
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    _say({"ready": True})
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        spec = load_spec(folder)
        os.chdir(folder)
        _forget_peak()
        count, text = 0, None
        try:
            for _sample in read_case(folder, spec):
                count += 1
        except LadingError as error:
            text = f"{type(error).__name__}: {error}"
        _say({"samples": count, "error": text, "peak_mb": _peak_mb()})


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    main()
