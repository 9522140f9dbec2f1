"""Count how large and how straight the source is, and write the numbers to `vitals.json`.

python vitals.py [--root FOLDER] [--json]

Numbers that are held may only fall: a test compares them with the file. Others are told.

What is counted:

- Checks of a step's class: `isinstance` calls outside `dataset/steps` that name its classes, or a constant of them.
- Checks of a feature's class: `isinstance` calls and patterns outside `features` that name its classes.
- Comparisons of the view: `==` and `!=` between `view` and a text.
- Methods of Format, with properties, and those that one class alone overrides. Fields of FormatInfo.
- Wrappers: classes of readers and views that take another reader or view when they are made; so are range caches.
- Class names defined twice: public names of classes that several modules define.
- Pools of workers; loops over tasks, which begin in one process and may hand the rest over.
- Tests that start processes outside of `make soak`: marks `mechanism`.
- One-use helpers: private functions of a module that its code names once.

- Code lines: lines that hold more than a comment or a docstring.
- Optional protocols: `runtime_checkable` protocols outside storage, and the `isinstance` checks on them.
- Imports of formats: import statements outside `formats/` of modules in it other than the contract, its one wrapper
  (`mapped`) and the registry.
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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType

VITALS = Path(__file__).with_name("vitals.json")
"""The numbers that `make vitals` wrote last. None of those that are `held` may rise (`tests/test_vitals.py`)."""

_CONTRACT = {"base", "dataset_index", "findings", "format", "mapped", "registry"}
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_COLUMNS = {"jpg", "json", "txt"}
_OF_SOURCE = {"Query", "Named", "ConversionJob"}
"""Classes of values that hold the source of a job."""
_PER_BATCH = ("sample_firsts", "total_bytes")
_NODE = ast.FunctionDef | ast.AsyncFunctionDef
_STEPS = ("dataset", "steps")
_FEATURES = ("features", "types")
_POOLS = {"ExecutorPool", "Processes", "Workers"}
"""Classes that give work to several processes, and take their answers."""
_RANGE_CACHES = {"HashingWalk", "RangeReader", "RecentBytes"}
"""Classes that read a range, perhaps more, keep it and ask ahead, or keep what others read."""


class Module:
    """A parsed file."""

    def __init__(self, path: Path, root: Path) -> None:
        self.parts = tuple(part for part in path.relative_to(root).with_suffix("").parts if part != "_core")
        self._text = path.read_text(encoding="utf-8")
        self._by_kind: defaultdict[type, list] = defaultdict(list)
        for node in ast.walk(ast.parse(self._text)):
            self._by_kind[type(node)].append(node)

    @cached_property
    def lines(self) -> set[int]:
        """Numbers of the code lines."""
        found: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self._text).readline):
            if token.type not in _NO_CODE:
                found.update(range(token.start[0], token.end[0] + 1))
        for node in self.of(ast.Expr):
            if isinstance(getattr(node.value, "value", None), str):
                found -= set(range(node.lineno, node.end_lineno + 1))
        return found

    def of(self, *kinds: type) -> list:
        return [node for kind in kinds for node in self._by_kind[kind]]

    def code_lines(self, node: ast.stmt) -> int:
        return len(self.lines & set(range(node.lineno, node.end_lineno + 1)))


def modules(folder: Path) -> list[Module]:
    """Parse the modules of a folder."""
    return [Module(path, folder) for path in sorted(folder.rglob("*.py"))]


def held(root: Path, source: Sequence[Module]) -> dict[str, int | list[str]]:
    """Numbers, and lists of names, that may only become smaller."""
    outside = [module for module in source if module.parts[0] != "formats"]
    optional, concrete = optional_protocols(source), concrete_classes(source)
    methods = public_methods(source, "Format")
    return {
        "checks of a step's class": step_checks(source),
        "checks of a feature's class": feature_checks(source),
        "comparisons of the view": sum(len(view_comparisons(module)) for module in source),
        "methods of Format": len(methods),
        "methods of Format that one class overrides": len(overridden_once(source, methods)),
        "fields of FormatInfo": len(fields_of(source, "FormatInfo")),
        "optional protocols": len(optional),
        "isinstance on optional protocols": sum(len(checks(module, optional)) for module in source),
        "isinstance on a concrete format, reader, writer or view": sum(len(checks(m, concrete)) for m in outside),
        "comparisons of a format's name": sum(len(name_comparisons(module)) for module in outside),
        "imports of formats from outside": sum(len(list(format_imports(module))) for module in outside),
        "tests that start processes": mechanisms(root / "tests"),
        "wrappers of readers and views": wrappers(source),
        "range caches": len(_RANGE_CACHES & class_names(source)),
        "class names defined twice": defined_twice(source),
        "pools of workers": len(_POOLS & class_names(source)),
        "loops over tasks": sum(map(task_loops, source)),
    }


def task_loops(module: Module) -> int:
    """Count the places that ask whether the rest of the tasks is worth workers: each is a loop over tasks."""
    return sum(ast.unparse(call.func).endswith(".is_worth_workers") for call in module.of(ast.Call))


def defined_twice(source: Iterable[Module]) -> list[str]:
    """Return the public names of classes that several modules define."""
    homes: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for module in source:
        for node in module.of(ast.ClassDef):
            homes[node.name].add(module.parts)
    return sorted(name for name, modules in homes.items() if len(modules) > 1 and not name.startswith("_"))


def class_names(source: Iterable[Module]) -> set[str]:
    """Names of all classes."""
    return {node.name for module in source for node in module.of(ast.ClassDef)}


def told(root: Path, source: Sequence[Module]) -> dict[str, int | str]:
    """Numbers that nothing holds."""
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
        "one-use helpers": sum(map(one_use_helpers, source)),
    }


def step_checks(source: Iterable[Module]) -> int:
    """Count `isinstance` calls outside `dataset/steps` that name a class of it, or a constant that lists some."""
    inside = [module for module in source if module.parts[:2] == _STEPS]
    outside = [module for module in source if module.parts[:2] != _STEPS]
    steps = {node.name for module in inside for node in module.of(ast.ClassDef)}
    assigned = [node.targets[0] for module in source for node in module.of(ast.Assign)]
    assigned += [node.target for module in source for node in module.of(ast.AnnAssign)]
    lists = {target.id for target in assigned if isinstance(target, ast.Name) and target.id.endswith("_STEPS")}
    home = "lading._core." + ".".join(_STEPS)
    found = 0
    for module in outside:
        imports = [node for node in module.of(ast.ImportFrom) if str(node.module).startswith(home)]
        named = {a.asname or a.name for node in imports for a in node.names if a.name in steps}
        found += len(checks(module, named | lists))
    return found


def feature_checks(source: Iterable[Module]) -> int:
    """Count `isinstance` calls and patterns outside `features` that name a class of a feature."""
    known = {node.name for module in source if module.parts == _FEATURES for node in module.of(ast.ClassDef)}
    found = 0
    for module in source:
        if module.parts[0] == _FEATURES[0]:
            continue
        imports = [node for node in module.of(ast.ImportFrom) if f".{_FEATURES[0]}" in str(node.module)]
        named = {a.asname or a.name for node in imports for a in node.names if a.name in known}
        patterns = [node for node in module.of(ast.MatchClass) if ast.unparse(node.cls) in named]
        found += len(checks(module, named)) + len(patterns)
    return found


def view_comparisons(module: Module) -> list[ast.Compare]:
    """Comparisons of something called view with a text."""

    def is_view(side: ast.expr) -> bool:
        return ast.unparse(side).rpartition(".")[2] in ("view", "_view")

    def is_text(side: ast.expr) -> bool:
        return isinstance(side, ast.Constant) and isinstance(side.value, str)

    pairs = [(node, (node.left, *node.comparators)) for node in module.of(ast.Compare)]
    return [node for node, sides in pairs if any(map(is_view, sides)) and any(map(is_text, sides))]


def class_of(source: Iterable[Module], name: str) -> ast.ClassDef:
    [found] = [node for module in source for node in module.of(ast.ClassDef) if node.name == name]
    return found


def public_methods(source: Iterable[Module], name: str) -> set[str]:
    return {n.name for n in class_of(source, name).body if isinstance(n, _NODE) and not n.name.startswith("_")}


def fields_of(source: Iterable[Module], name: str) -> list[ast.AnnAssign]:
    return [node for node in class_of(source, name).body if isinstance(node, ast.AnnAssign)]


def overridden_once(source: Iterable[Module], methods: set[str]) -> list[str]:
    """Methods that one class of a format alone has."""
    counts = Counter(
        inner.name
        for module in source
        if module.parts[0] in {"formats", "interleaved"}
        for node in module.of(ast.ClassDef)
        if any(base.endswith("Format") for base in bases(node))
        for inner in node.body
        if isinstance(inner, _NODE) and inner.name in methods
    )
    return [name for name, count in counts.items() if count == 1]


def wrappers(source: Iterable[Module]) -> list[str]:
    """Readers and views whose maker takes a reader or view, and classes made of these; sorted."""
    found: dict[str, str] = {}
    classes = [(module, node) for module in source for node in module.of(ast.ClassDef)]
    for module, node in (*classes, *classes):  # twice: a base may come behind
        makers = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        given = [a.annotation for maker in makers for a in (*maker.args.args, *maker.args.kwonlyargs)]
        given += [n.annotation for n in node.body if isinstance(n, ast.AnnAssign)]
        takes = any(a is not None and ast.unparse(a).endswith(("Reader", "View")) for a in given)
        if bases(node) & found.keys() or (takes and any(base.endswith(("Reader", "View")) for base in bases(node))):
            found[node.name] = f"{'.'.join(module.parts)}.{node.name}"
    return sorted(found.values())


def mechanisms(tests: Path) -> int:
    """Count the marks of tests that start processes in `make test`."""
    return sum(path.read_text().count("@pytest.mark.mechanism(") for path in tests.rglob("test_*.py"))


def one_use_helpers(module: Module) -> int:
    """Private functions of a module that its code names once."""
    names = Counter(node.id for node in module.of(ast.Name)) + Counter(n.attr for n in module.of(ast.Attribute))
    private = {n.name for n in module.of(ast.FunctionDef) if n.name.startswith("_") and not n.name.endswith("__")}
    return sum(names[name] == 1 for name in private)


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
            own = node.module == "lading._core.formats"
            names = [f"{node.module}.{name}" for name in names] if own else [str(node.module)]
        found = [name for name in names if name.startswith("lading._core.formats.")]
        yield from (name for name in found if name.split(".")[3] not in _CONTRACT)


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
    """What is called, and what a batch and the source pass, while lading works."""

    def __init__(self, package: Path, source: str) -> None:
        self._lead, self._source = f"{package}{os.sep}", source
        self.calls: Counter[str] = Counter()
        self.gave: set[str] = set()
        self.took: set[str] = set()
        self.sourced: set[str] = set()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._lead) or "<" in code.co_name or code.co_qualname.startswith("Batch."):
            return
        name = f"{code.co_filename[len(self._lead) :]}:{code.co_qualname}"
        if event == "return" and has_samples(value):
            self.gave.add(name)
        elif event == "call" and frame.f_lasti <= 0:
            self.calls[code.co_qualname] += 1
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            arguments = [frame.f_locals.get(argument) for argument in names]
            if any(map(has_samples, arguments)):
                self.took.add(name)
            if any(self.has_source(each) for each in arguments):
                self.sourced.add(name)

    def has_source(self, value: object) -> bool:
        """Whether a value is the source of the job, or holds it."""
        return (type(value) is str and value == self._source) or type(value).__name__ in _OF_SOURCE


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

        source = os.path.dirname(tars[0])
        trace = Trace(Path(str(lading.__file__)).parent, source)
        opened.clear()
        threading.setprofile(trace)
        sys.setprofile(trace)
        lading.convert(source, os.path.join(folder, "out"), format="parquet")
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
        "functions that get the source": len(trace.sourced),
        "… modules of these": len({name.partition(":")[0] for name in trace.sourced}),
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


def count(root: Path) -> dict[str, dict[str, object]]:
    source = modules(root / "src" / "lading")
    return {"held": {**held(root, source)}, "told": {**told(root, source), **count_conversion(root)}}


def risen(before: dict[str, object], now: dict[str, object]) -> list[str]:
    """What changed of the held numbers: which, and by what."""
    changes = []
    for name, value in now.items():
        known = before.get(name)
        if isinstance(value, list):
            changes += [f"{name}: {new} is new" for new in value if new not in (known or ())]
        elif not isinstance(known, int) or value > known:
            changes.append(f"{name}: {value}, was {known}")
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the project")
    parser.add_argument("--json", action="store_true", help="print only the numbers, as JSON; write nothing")
    args = parser.parse_args()
    now = count(args.root.resolve())
    if args.json:
        print(json.dumps(now, indent=4, ensure_ascii=False))
        return
    before = json.loads(VITALS.read_text())
    print(f"{'':56}{'before':>27}{'now':>27}")
    for kind, numbers in now.items():
        for name, value in numbers.items():
            cells = [len(cell) if isinstance(cell, list) else cell for cell in (before[kind].get(name, ""), value)]
            shown = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
            print(f"{name:56}{shown[0]:>27}{shown[1]:>27}{'  held' if kind == 'held' else ''}")
    for change in risen(before["held"], now["held"]):
        print(f"ROSE  {change}")
    VITALS.write_text(json.dumps(now, indent=4, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
