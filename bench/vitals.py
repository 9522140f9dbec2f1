"""Count how large and how straight the source is, next to the counts before the redesign.

python vitals.py [--root FOLDER] [--json]

What is counted:

- Code lines: lines that hold more than a comment or a docstring.
- Optional protocols: `runtime_checkable` protocols outside storage, and the `isinstance` checks on them.
- Imports of formats: import statements outside `formats/` of modules in it other than the contract and the registry.
- Hops: functions that return or yield a record batch of samples, or write it, while two tars become one Parquet file.
  Functions that only look at the batch are added in the row below.
- Header walks: how often reading the headers of a tar begins. Opens: shards that are opened, and files by the system.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import sys
import tarfile
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

# What this script printed for commit 2af51e1.
BEFORE: dict[str, int | str] = {
    "code lines": 39028,
    "code lines of the tests": 37127,
    "largest module": "dataset 697",
    "functions over 60 code lines": 4,
    "functions with more than 8 parameters": 18,
    "… outside the front door": 8,
    "classes over 300 lines": 10,
    "protocols": 62,
    "optional protocols": 37,
    "isinstance on optional protocols": 80,
    "isinstance on a concrete format, reader, writer or view": 32,
    "comparisons of a format's name": 11,
    "imports of formats from outside": 26,
    "hops of one batch": 32,
    "… with functions that only look at it": 42,
    "calls of align_table": 4,
    "calls of sample_firsts": 5,
    "calls of total_bytes": 7,
    "header walks of two tars": 5,
    "shards opened of two tars": 3,
    "files opened of two tars": 10,
}

_CONTRACT = {"base", "protocol", "registry"}
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_COLUMNS = {"jpg", "json", "txt"}
_PER_BATCH = ("align_table", "sample_firsts", "total_bytes")
_NODE = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A parsed file."""

    def __init__(self, path: Path, root: Path) -> None:
        self.parts = path.relative_to(root).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        self.nodes = list(ast.walk(ast.parse(text)))
        self.lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _NO_CODE:
                self.lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
                self.lines -= set(range(node.lineno, node.end_lineno + 1))

    def of(self, *kinds: type) -> list:
        return [node for node in self.nodes if isinstance(node, kinds)]

    def code_lines(self, node: ast.stmt) -> int:
        return len(self.lines & set(range(node.lineno, node.end_lineno + 1)))


def modules(folder: Path) -> list[Module]:
    return [Module(path, folder) for path in sorted(folder.rglob("*.py"))]


def count_source(root: Path) -> dict[str, int | str]:
    source = modules(root / "src" / "lading")
    outside = [module for module in source if module.parts[0] != "formats"]
    optional, concrete = optional_protocols(source), concrete_classes(source)
    functions = [(module, node) for module in source for node in module.of(ast.FunctionDef, ast.AsyncFunctionDef)]
    wide = [(module, node) for module, node in functions if parameters(node) > 8]
    front = front_door(source)
    largest = max(source, key=lambda module: len(module.lines))
    return {
        "code lines": sum(len(module.lines) for module in source),
        "code lines of the tests": sum(len(module.lines) for module in modules(root / "tests")),
        "largest module": f"{'/'.join(largest.parts)} {len(largest.lines)}",
        "functions over 60 code lines": sum(module.code_lines(node) > 60 for module, node in functions),
        "functions with more than 8 parameters": len(wide),
        "… outside the front door": sum(not named_by(module, node, front) for module, node in wide),
        "classes over 300 lines": sum(
            node.end_lineno - node.lineno >= 300 for module in source for node in module.of(ast.ClassDef)
        ),
        "protocols": sum("Protocol" in bases(node) for module in source for node in module.of(ast.ClassDef)),
        "optional protocols": len(optional),
        "isinstance on optional protocols": sum(len(checks(module, optional)) for module in source),
        "isinstance on a concrete format, reader, writer or view": sum(len(checks(m, concrete)) for m in outside),
        "comparisons of a format's name": sum(len(name_comparisons(module)) for module in outside),
        "imports of formats from outside": sum(len(list(format_imports(module))) for module in outside),
    }


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def optional_protocols(source: Iterable[Module]) -> set[str]:
    return {
        node.name
        for module in source
        if module.parts[0] not in {"storage", "store"}
        for node in module.of(ast.ClassDef)
        if any(ast.unparse(mark).endswith("runtime_checkable") for mark in node.decorator_list)
    }


def concrete_classes(source: Iterable[Module]) -> set[str]:
    return {
        node.name
        for module in source
        for node in module.of(ast.ClassDef)
        if module.parts[0] in {"formats", "interleaved", "layouts"}
        if module.parts[-1] not in _CONTRACT
        if node.name.endswith(("Format", "Reader", "Writer", "View"))
    }


def checks(module: Module, classes: set[str]) -> list[ast.Call]:
    calls = [c for c in module.of(ast.Call) if ast.unparse(c.func) in {"isinstance", "issubclass"}]
    return [c for c in calls if {n.id for n in ast.walk(c.args[1]) if isinstance(n, ast.Name)} & classes]


def name_comparisons(module: Module) -> list[ast.Compare]:
    """Comparisons in which one side is `….format.name`, `fmt.name` or `….info.name`."""

    def is_name(side: ast.expr) -> bool:
        return ast.unparse(side).endswith(("format.name", "fmt.name", "info.name"))

    return [node for node in module.of(ast.Compare) if any(map(is_name, (node.left, *node.comparators)))]


def format_imports(module: Module) -> Iterator[str]:
    for node in module.of(ast.Import, ast.ImportFrom):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            own = node.module == "lading.formats"
            names = [f"{node.module}.{name}" for name in names] if own else [str(node.module)]
        found = [name for name in names if name.startswith("lading.formats.")]
        yield from (name for name in found if name.split(".")[2] not in _CONTRACT)


def parameters(node: _NODE) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def front_door(source: Iterable[Module]) -> set[str]:
    """Names in the `__init__` files of what users import: `lading`, and the packages it shows."""
    doors = [module for module in source if module.parts[-1] == "__init__" and module.parts[0] != "cli"]
    return {str(node.value) for module in doors for node in module.of(ast.Constant)}


def named_by(module: Module, function: _NODE, front: set[str]) -> bool:
    classes = [node for node in module.of(ast.ClassDef) if function in node.body]
    return bool({node.name for node in (function, *classes)} & front) and module.parts[0] != "cli"


class Trace:
    """What is called, and what a batch passes, while lading works."""

    def __init__(self, package: Path) -> None:
        self._lead = f"{package}{os.sep}"
        self.calls: Counter[str] = Counter()
        self.gave: set[str] = set()
        self.took: set[str] = set()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._lead) or "<" in code.co_name or code.co_qualname.startswith("Batch."):
            return
        name = f"{code.co_filename[len(self._lead) :]}:{code.co_qualname}"
        if event == "return" and has_samples(value):
            self.gave.add(name)
        elif event == "call" and frame.f_lasti <= 0:
            self.calls[code.co_qualname] += 1
            count = code.co_argcount + code.co_kwonlyargcount
            if any(has_samples(frame.f_locals.get(argument)) for argument in code.co_varnames[:count]):
                self.took.add(name)


def has_samples(value: object) -> bool:
    """Whether a value is a batch of samples, or a short list of some."""
    if isinstance(value, tuple | list):
        return any(has_samples(inner) for inner in value[:10] if not isinstance(inner, tuple | list))
    schema = getattr(value, "schema", None) if type(value).__name__ in {"RecordBatch", "Table"} else None
    return type(value).__name__ == "Batch" or bool(schema and _COLUMNS & set(schema.names))


def count_conversion(root: Path) -> dict[str, int | str]:
    """Convert two tars to Parquet and count."""
    sys.path.insert(0, str(root / "src"))
    opened: Counter[str] = Counter()
    sys.addaudithook(lambda event, seen: opened.update([str(seen[0])]) if event == "open" else None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LADING_CACHE"] = os.path.join(folder, "cache")
        tars = [make_tar(os.path.join(folder, "tars", f"{shard:05d}.tar"), shard) for shard in range(2)]
        import lading

        trace = Trace(Path(str(lading.__file__)).parent)
        opened.clear()
        threading.setprofile(trace)
        sys.setprofile(trace)
        lading.convert(os.path.dirname(tars[0]), os.path.join(folder, "out"), format="parquet")
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    hops = trace.gave | {name for name in trace.took if "write" in name.rpartition(":")[2]}
    called = trace.calls
    missing = [name for name in ("Walk.__init__", *_PER_BATCH) if not called[name]]
    if missing:
        print(f"never called, renamed perhaps: {', '.join(missing)}", file=sys.stderr)
    return {
        "hops of one batch": len(hops),
        "… with functions that only look at it": len(trace.gave | trace.took),
        **{f"calls of {name}": called[name] for name in _PER_BATCH},
        "header walks of two tars": called["Walk.__init__"],
        "shards opened of two tars": called["WebdatasetFormat.open_shard"] + called["WebdatasetFormat.open"],
        "files opened of two tars": sum(opened[path] for path in tars),
    }


def make_tar(path: str, shard: int) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key in range(100):
            for field, value in (("jpg", b"\xff\xd8" + bytes(2000)), ("json", b'{"a": %d}' % key), ("txt", b"a text")):
                info = tarfile.TarInfo(f"{shard:02d}{key:04d}.{field}")
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the project")
    parser.add_argument("--json", action="store_true", help="print only the counts, as JSON")
    args = parser.parse_args()
    root = args.root.resolve()
    now = {**count_source(root), **count_conversion(root)}
    if args.json:
        print(json.dumps(now, indent=4, ensure_ascii=False))
        return
    print(f"{'':56}{'2af51e1':>27}{'now':>27}")
    for name, value in now.items():
        cells = [f"{cell:,}" if isinstance(cell, int) else cell for cell in (BEFORE.get(name, ""), value)]
        print(f"{name:56}{cells[0]:>27}{cells[1]:>27}")


if __name__ == "__main__":
    main()
