"""minitf without its papers: a copy without them imports, trains and keeps contracts, and names none of them."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT, TINY, tiny_model
from kind_questions import nodes_of

from mini_tf.recipe.kind_folders import PACKAGES, own_folders

PACKAGE = ROOT / "mini_tf"
PAPERS = PACKAGE / "papers"

TRIED = r"""
import contextlib
import importlib
import io
import sys
from pathlib import Path

sys.modules["transformers"] = None  # as if it were not installed: its import takes longer than all of this

import mini_tf
from mini_tf.cli import app
from mini_tf.recipe import kind_folders
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.reading import read
from mini_tf.system.errors import RecipeFault

root = Path(mini_tf.__file__).parent
assert root == Path.cwd() / "mini_tf", root
assert [folder.module for folder in kind_folders.own_folders()] == ["mini_tf"]
for file in root.rglob("*.py"):
    if file.name != "__main__.py":
        importlib.import_module(".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"))
for package in kind_folders.PACKAGES:
    assert listing(package), package
    for word in listing(package):
        assert settings_of(package, word).PACKAGE == package
for name in presets():
    read(name)

from mini_tf.testing import attention, objectives

for word in ("softmax", "window"):
    for case in attention.self_attention_cases(settings_of("attention", word)(), {"none": None}):
        if case.name.startswith("packed"):
            case.run()
objectives.prepare_is_pure(settings_of("objectives", "next_token")())


def minitf(*arguments):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app.main([*arguments])
    return printed.getvalue()


assert "inspect-attention" in minitf("--help")
assert "positions" in minitf("inspect", "--help")
minitf("pretrain", *sys.argv[1:], "train.steps=2", "-d", "run", "-q")
assert (Path("run") / "model.safetensors").is_file()
assert minitf("generate", "run", "The", "--max-new-tokens", "2")

paper = root / "papers" / "mine"
(paper / "attention").mkdir(parents=True)
(paper / "sums.py").write_text("from mini_tf.attention.softmax import Settings as Base")
(paper / "attention" / "mean.py").write_text("from ..sums import Base\n\nclass Settings(Base):\n    pass\n")
kind_folders.own_folders.cache_clear()
kind_folders.clear_caches()
assert settings_of("attention", "mean")().kind == "mean"

(paper / "inspection").mkdir()
(paper / "inspection" / "broken.py").write_text("def (")
kind_folders.clear_caches()
listed = minitf("inspect", "--help")
assert "positions" in listed and "broken" not in listed

(paper / "recipes").mkdir()
(paper / "recipes" / "quickstart.yaml").write_text("extends: gpt-nano")
try:
    presets()
except RecipeFault as fault:
    assert "two shipped recipes have the name 'quickstart'" in fault.message
else:
    raise AssertionError("one of two recipes is shadowed")
"""


def test_a_copy_without_papers_imports_trains_and_keeps_contracts(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "mini_tf", ignore=shutil.ignore_patterns("papers"))
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    arguments = [TINY, tiny_model("decoder"), "train.context=16", "eval.tokens=64", "log.samples=0"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MINITF_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", TRIED, *map(str, arguments)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


ORDINARY = {"linear", "simple"}
"""Words of papers that mean other things, too; `test_architecture_kinds.py` finds where they would mean the kind."""


def words_of_papers() -> set[str]:
    papers = own_folders()[1:]
    packages = {*PACKAGES} - {"inspection"}  # words of views are ordinary, and no recipe names them
    kinds = {kind.word for paper in papers for package in packages for kind in paper.kinds(package)}
    return (kinds | {paper.module.rpartition(".")[2] for paper in papers}) - ORDINARY


def strings_and_names(file: Path) -> Iterator[tuple[int, str]]:
    """Those of the code, without docstrings and comments."""
    statements = {node.value for node in nodes_of(file) if isinstance(node, ast.Expr)}
    for node in nodes_of(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


@pytest.mark.skipif(not PAPERS.is_dir(), reason="there are no papers")
def test_no_code_outside_of_papers_names_one_of_their_kinds() -> None:
    named = re.compile(rf"\b({'|'.join(sorted(words_of_papers()))})\b")
    assert named.search("attention: {kind: favor}")
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if PAPERS not in file.parents]
    places = [(file, line, text) for file in files for line, text in strings_and_names(file) if named.search(text)]
    assert [f"{file.relative_to(ROOT)}:{line}: {text[:80]}" for file, line, text in places] == []
