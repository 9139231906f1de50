"""The house plan, held to the code: imports go down the floors only, and nothing runs foreign code."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from floors import FLOORS, picture
from kind_questions import nodes_of, packages, parsed

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mini_tf"
PAPERS = PACKAGE / "papers"
BASE_SETTINGS = PACKAGE / "recipe" / "kind_settings"

FLOOR = {name: number for number, floor in enumerate(FLOORS) for name in floor} | {
    "__main__": len(FLOORS),
    "papers": len(FLOORS),
}
"""`__init__` holds the version, for anybody, and hands on what `api` has; `__main__` is the door; papers may be absent.
"""
MOST_FILES = 16
"""Of a folder, beside its `__init__`."""

SLOW = {"torch", "numpy", "tokenizers", "safetensors", "matplotlib", "pyarrow"}
NO_NAMES = {"utils", "helpers", "common", "base", "misc", "manager"}
FOREIGN_BASES = {"nn.Module", "NamedTuple", "Protocol", "BaseModel", "Exception"}
FILES = sorted(PACKAGE.rglob("*.py"))


class Import(NamedTuple):
    """`module` is imported in `file` at `line`; `local`: inside a function, or for type checkers alone."""

    file: Path
    line: int
    module: str
    local: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.module}"


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, however deep it stands; `from a import b` counts as a and as a.b.

    Without those of base settings for type checkers alone: they name what kinds build, which is above them.
    """
    left: list[tuple[ast.AST, bool]] = [(statement, False) for statement in parsed(file).body]
    while left:
        node, local = left.pop()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or PAPERS in file.parents, f"{file}:{node.lineno}: imports name the whole path"
            module = str(node.module)
            if node.level:
                above = file.relative_to(ROOT).parts[: -node.level]
                module = ".".join([*above, *([node.module] if node.module else [])])
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif not (isinstance(node, ast.If) and is_local(node) and file.parent == BASE_SETTINGS):
            inside = local or is_local(node)
            parts = ("body", "handlers", "orelse", "finalbody", "cases")  # those of statements
            left += [(child, inside) for part in parts for child in getattr(node, part, ())]
            continue
        else:
            continue
        yield from (Import(file, node.lineno, name, local) for name in names)


def is_local(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


@cache
def all_imports() -> list[Import]:
    return [one for file in FILES for one in imports_of(file)]


@cache
def own_imports() -> list[Import]:
    return [one for one in all_imports() if one.module.startswith("mini_tf.")]


@cache
def part_of(file: Path) -> str:
    """The file or folder directly in mini_tf that a file belongs to."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_part_of_the_house_has_a_floor_and_is_a_folder() -> None:
    assert {part_of(file) for file in FILES} - {"__init__", "papers"} == FLOOR.keys() - {"papers"}
    assert {file.name for file in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert len(FLOORS) <= 12


def test_no_folder_has_more_files_than_one_can_look_through() -> None:
    """Kinds do not count: their packages are open to any number."""
    kinds = {file for folder in packages(PACKAGE) for file in folder.glob("[!_]*.py")}
    counts = Counter(
        file.parent.relative_to(PACKAGE).as_posix()
        for file in FILES
        if file.name != "__init__.py" and file not in kinds
    )
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_the_page_shows_the_floors_that_are_held() -> None:
    assert picture() in (ROOT / "mini_tf" / "README.md").read_text()


def test_imports_go_down_the_floors_and_never_to_a_neighbour() -> None:
    def climbs(one: Import) -> bool:
        here, there = part_of(one.file), one.module.split(".")[1]
        if here == "__init__":
            return there in FLOOR and not (there == "api" and one.local)
        return there in FLOOR and there != here and FLOOR[there] >= FLOOR[here]

    assert [str(one) for one in own_imports() if climbs(one)] == []


def test_papers_do_not_know_each_other() -> None:
    papers = [(one, one.file.relative_to(PAPERS).parts[0]) for one in own_imports() if PAPERS in one.file.parents]
    assert [
        str(one)
        for one, paper in papers
        if one.module.startswith("mini_tf.papers.") and one.module.split(".")[2] != paper
    ] == []


def test_files_of_a_package_of_kinds_do_not_know_each_other() -> None:
    """What kinds share stands in the package itself or in a file whose name begins with an underscore."""
    kinds = {
        ".".join(folder.relative_to(PACKAGE).parts) for folder in packages(PACKAGE) if PAPERS not in folder.parents
    }

    def strays(one: Import) -> bool:
        package, _, name = one.module.removeprefix("mini_tf.").rpartition(".")
        is_kind = not name.startswith("_") and (PACKAGE / package.replace(".", "/") / f"{name}.py").exists()
        return package in kinds and is_kind and PAPERS not in one.file.parents

    assert [str(one) for one in own_imports() if strays(one)] == []


def test_only_the_commands_import_our_own_modules_inside_functions() -> None:
    """torch takes a second to import, and --help must not. The others: it draws by matplotlib, which is as slow; and
    `import mini_tf` imports what is used.
    """
    positions = {
        one.file.relative_to(PACKAGE).as_posix() for one in own_imports() if one.local and "cli" not in one.file.parts
    }
    assert positions == {"run/folder.py", "__init__.py"}


def test_one_function_imports_by_a_word() -> None:
    """What packages add is read as metadata in a file of its own, which imports none of it."""
    where = {
        (one.file.relative_to(PACKAGE).as_posix(), one.module)
        for one in all_imports()
        if one.module.startswith("importlib")
    }
    finding, testing = "recipe/kind_folders.py", "testing/kinds.py"
    by_word = {("recipe/kinds.py", "importlib"), ("cli/terminal/help.py", "importlib")}
    metadata = {(finding, f"importlib{name}") for name in ("", ".metadata", ".util", ".util.find_spec")}
    assert where == by_word | {(testing, "importlib"), (testing, "importlib.invalidate_caches")} | metadata
    loads = [node for node in nodes_of(PACKAGE / finding) if isinstance(node, ast.Attribute)]
    assert not {node.attr for node in loads} & {"load", "import_module"}
    assert [call for file in FILES for call in calls_of(file, {"__import__"})] == []


def test_nothing_unpickles_or_runs_text_as_code() -> None:
    assert [
        str(one)
        for one in all_imports()
        if one.module.split(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle", "code"}
    ] == []
    assert [call for file in FILES for call in calls_of(file, {"eval", "exec", "compile"})] == []
    assert [
        call
        for file in FILES
        for call in calls_of(file, {"torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"})
    ] == []


def calls_of(file: Path, names: set[str]) -> list[str]:
    """Where functions of these names are called or handed on; a method or a field of such a name is another thing."""
    last = {name.rpartition(".")[2] for name in names}
    read = [node for node in read_in(file) if getattr(node, "id", getattr(node, "attr", "")) in last]
    return [f"{file.relative_to(ROOT)}:{node.lineno}" for node in read if ast.unparse(node) in names]


@cache
def read_in(file: Path) -> list[ast.Name | ast.Attribute]:
    """The names and attributes that a file reads."""
    mentioned = (node for node in nodes_of(file) if isinstance(node, ast.Name | ast.Attribute))
    return [node for node in mentioned if isinstance(node.ctx, ast.Load)]


def test_the_bottom_and_the_commands_import_nothing_slow() -> None:
    def is_slow(one: Import) -> bool:
        top, *rest = one.module.split(".")
        return top in SLOW or (
            top == "mini_tf" and rest[:1] != ["cli"] and any(FLOOR.get(part, 0) > FLOOR["recipe"] for part in rest[:1])
        )

    at_top = [
        one
        for one in all_imports()
        if part_of(one.file) in {"system", "recipe"} or (part_of(one.file) == "cli" and not one.local)
    ]
    assert [str(one) for one in at_top if is_slow(one)] == []


@pytest.mark.parametrize("module", ["mini_tf", "mini_tf.cli.app"])
def test_nothing_slow_is_imported_before_something_is_used(module: str) -> None:
    """As the test above, but of what really happens, our dependencies' own imports included."""
    code = f"import sys, {module}; print(sorted({SLOW!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == "[]\n"


CLASSES_TWICE_FOR_NOW = {
    *("Batch", "Checkpoint", "Comparison", "Head", "Measured", "MemoryUse", "Pair", "Prediction", "Row", "Tokenizer"),
    "Tokens",
}
FACTS_FOR_RECIPES = {"ModelSettings"}
"""`recipe.kind_settings` has the part of it that needs no torch; the full contract derives from that."""


def test_a_basename_stands_once_beside_kinds_commands_and_contracts() -> None:
    """A command's file has the command's name, a contract's file that of its package of kinds."""
    kinds = {file for folder in packages(PACKAGE) for file in folder.glob("[!_]*.py")}
    names = Counter(file.stem for file in FILES if file not in kinds and not {"cli", "testing"} & {*file.parts})
    assert {name for name, count in names.items() if count > 1 and name != "__init__"} == set()


def test_the_name_of_a_public_class_means_one_thing() -> None:
    trees = (parsed(file) for file in FILES)
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    twice = {name for name, count in classes.items() if count > 1 and not name.startswith("_")}
    assert twice - {"Settings"} <= CLASSES_TWICE_FOR_NOW | FACTS_FOR_RECIPES


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [file for file in FILES if {*file.relative_to(PACKAGE).with_suffix("").parts} & NO_NAMES] == []


def test_every_file_and_public_class_says_first_what_it_is_for() -> None:
    """A class made of another of ours is told by that one, and by the first line of its file."""
    silent = []
    for file in FILES:
        tree = parsed(file)
        if not file.read_text().startswith('"""') or not first_line(tree):
            silent.append(f"{file}: line 1")
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        first_of_its_line = [c for c in classes if not c.bases or ast.unparse(c.bases[0]) in FOREIGN_BASES]
        silent += [f"{file}: class {c.name}" for c in first_of_its_line if not first_line(c)]
    assert silent == []


def first_line(node: ast.Module | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def test_files_functions_and_signatures_stay_small() -> None:
    """The limits of style.md with some room: seldom over 250 lines, 50 lines and 7 parameters, never far over."""
    functions = [(file, f) for file in FILES for f in nodes_of(file) if isinstance(f, ast.FunctionDef)]
    lengths = {file: len(file.read_text().splitlines()) for file in FILES}
    assert [str(file) for file, n in lengths.items() if n > (370 if "testing" in file.parts else 320)] == []
    assert [f"{file}: {f.name}" for file, f in functions if (f.end_lineno or 0) - f.lineno > 66] == []
    many = [(file, f.name) for file, f in functions if len(f.args.args) > 8]
    assert [
        (file, name) for file, name in many if "cli" not in file.parts
    ] == []  # there a parameter is an option of the command


def test_what_a_compiled_task_computes_of_a_named_tuple_is_a_method() -> None:
    """torch 2.10 compiles no property of one."""
    compiled = {"nn", "attention", "positions", "models", "objectives"}
    classes = [node for file in FILES if part_of(file) in compiled for node in nodes_of(file) if is_named_tuple(node)]
    assert len(classes) > 10
    assert not [name for node in classes for name in ast.walk(node) if getattr(name, "id", "").endswith("property")]


def is_named_tuple(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)


def test_the_way_from_recipe_to_run_is_readable_in_one_function() -> None:
    file = PACKAGE / "jobs/pretrain.py"
    assert len({(one.line, one.module.split(".")[0]) for one in imports_of(file)}) <= 15
    lengths = [
        f.end_lineno - f.lineno + 1 for f in parsed(file).body if isinstance(f, ast.FunctionDef) and f.end_lineno
    ]
    assert max(lengths) <= 50
