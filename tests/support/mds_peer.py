"""mosaicml-streaming in a process of its own: `python mds_peer.py read|write SPEC`, a pickle in, a pickle out.

The peer imports torchvision and transformers for datasets that nobody here opens; stand-ins take their places.
"""

from __future__ import annotations

import pickle
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_ABSENT = ("torchvision", "transformers")


class _StandIn(ModuleType):
    """A module that has every name, as an empty class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StandIns(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.split(".", maxsplit=1)[0] in _ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def main() -> None:
    sys.meta_path.insert(0, _StandIns())
    from streaming import MDSWriter, StreamingDataset

    verb, spec = sys.argv[1], pickle.loads(Path(sys.argv[2]).read_bytes())
    if verb == "write":
        for job in spec:
            with MDSWriter(out=job["out"], columns=job["columns"], **job["options"]) as writer:
                for row in job["rows"]:
                    writer.write(row)
        return
    dataset = StreamingDataset(local=spec, batch_size=1, validate_hash=None)
    rows = [dataset[i] for i in range(len(dataset))]
    Path(sys.argv[2]).write_bytes(pickle.dumps(rows))


if __name__ == "__main__":
    main()
