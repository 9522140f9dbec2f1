"""Read hostile cases one after another, in a process that `hostile.py` watches: `python hostile_child.py READER.py`.

Says when it is ready, then takes a case folder a line on standard input and answers each with a line of JSON. Only
lading's own errors are caught; anything else ends the process, and is judged by its traceback.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
import time
from pathlib import Path

from golden_cases import load_spec
from lading.errors import LadingError
from watched import forget_peak, peak_mb, say

_MEMORY_BYTES = 4 << 30  # a bomb must not take the machine down


def main() -> None:
    read_case = runpy.run_path(sys.argv[1])["read_case"]
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    say({"ready": True})
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        spec = load_spec(folder)
        os.chdir(folder)
        forget_peak()
        began, count, text = time.process_time(), 0, None
        try:
            for _sample in read_case(folder, spec):
                count += 1
        except LadingError as error:
            text = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - began
        say({"samples": count, "error": text, "seconds": seconds, "peak_mb": peak_mb()})


if __name__ == "__main__":
    main()
