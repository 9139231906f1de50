"""The notebook is the page of minitf in Python, and each of its cells runs in a kernel."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pages
import pytest
from nbclient import NotebookClient
from notebook import NOTEBOOK, ROOT, text

SMALL = {
    "train.steps": 2, "train.batch_size": 2, "runtime.threads": 1, "log.samples": 0, "eval.baseline": False,
    "model.d_model": 32, "model.n_layers": 2, "model.n_heads": 2, "tokenizer.vocab_size": 280,
}  # fmt: skip
QUICK = f"""
import mini_tf
for name in ("pretrain", "finetune"):
    def quick(*arguments, call=getattr(mini_tf, name), **settings):
        return call(*arguments, **settings, **{SMALL})
    setattr(mini_tf, name, quick)
"""
"""A cell before the others: models that are hardly trained."""


def test_the_notebook_is_made_of_the_page() -> None:
    assert NOTEBOOK.read_text() == text(), "remake it: python -m tests.notebook"


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "data", tmp_path / "data")
    pages.prepare(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    made: Any = nbformat.reads(text(), as_version=4)
    made.cells.insert(0, nbformat.v4.new_code_cell(QUICK))
    made.metadata.kernelspec = {"name": "python3", "display_name": sys.executable}
    client = NotebookClient(made, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    data = [output["data"] for output in shown if output.output_type in ("display_data", "execute_result")]
    assert sum("image/png" in one for one in data) == 1
    printed = "".join(output.text for output in shown if output.output_type == "stream" and output.name == "stdout")
    assert (
        "--num-beams: beam search needs an encoder-decoder, and first is of the kind decoder; leave it out" in printed
    )
    assert any("LoadedRun(first: decoder" in one["text/plain"] for one in data)
    assert (tmp_path / "outputs" / "opinions" / "model.safetensors").exists()
