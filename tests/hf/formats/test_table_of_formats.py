"""Which shipped recipes go to ONNX and GGUF: the table of the page."""

import re
from pathlib import Path

import pytest
from test_onnx import loaded

from mini_tf.hf.formats.gguf import gguf_model
from mini_tf.hf.formats.onnx import graphs_of
from mini_tf.recipe.arguments import presets
from mini_tf.system.errors import RunFault

gguf = pytest.importorskip("gguf", reason="needs minitf[gguf]")
PAGE = (Path(__file__).parents[3] / "mini_tf" / "hf" / "README.md").read_text()
TABLE = PAGE.partition("| recipe | ONNX | GGUF |")[2].partition("\n\n")[0]
ROWS = {name: row for name, row in re.findall(r"\| `([\w-]+)` \| (.+ \| .+) \|", TABLE) if name in presets()}


def row(name: str) -> str:
    model = loaded(name)
    try:
        onnx = " and ".join(f"`{graph.file}`" for graph in graphs_of(model))
    except RunFault as fault:
        onnx = f"no: {fault.message.partition(': ')[2]}"
    try:
        _, written = gguf_model(model, gguf)
        tokenizer = model.recipe.tokenizer.kind
        word = written.architecture.word
        llama_cpp = f"`{word}`" if tokenizer == "bpe" else f"no: `{word}`, but the tokenizer is {tokenizer}"
    except RunFault as fault:
        computed = re.search(r"llama.cpp .*", fault.message)
        llama_cpp = f"no: {computed[0]}" if computed else "no, as no family has it"
    return f"{onnx} | {llama_cpp}"


def test_the_page_says_which_recipe_goes_to_which_format() -> None:
    rows = {name: row(name) for name in sorted(presets()) if not name.startswith("cbow-ladder")}
    assert rows == ROWS, "\n".join(f"| `{name}` | {where} |" for name, where in rows.items())
