"""Decoders as GGUF files: what is read back gives the logits and the token ids of the run; and which recipes go out."""

import json
import re
from pathlib import Path
from typing import Any

import families
import pytest
import tokenizers
import torch
from commands import minitf, refused, trained
from families import transformers
from hostile import HOSTILE
from test_onnx import loaded

from mini_tf.hf.formats._gguf_architectures import frequency_factors
from mini_tf.hf.formats.gguf import gguf_model
from mini_tf.hf.formats.onnx import graphs_of
from mini_tf.nn.tokens import Tokens
from mini_tf.positions.rotary import LongWavelengths, Rotary
from mini_tf.recipe.arguments import presets
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import open_trained

gguf = pytest.importorskip("gguf", reason="needs minitf[gguf]")
BPE = "tokenizer={kind: bpe, vocab_size: 300}"
MODELS = {
    "apertus": "norm: rms, activation: relu2, attention: {qk_norm: true}, n_kv_heads: 1",
    "arcee": "norm: rms, activation: relu2, positions: {kind: rotary, base: 500, factor: 2}",
    "llama": "norm: rms, activation: swiglu, n_kv_heads: 1, tied: false",
    "qwen3": "norm: rms, activation: swiglu, attention: {qk_norm: weight, scale: 0.5}, d_k: 6",
    "gpt2": "norm: layer, activation: gelu_tanh, positions: learned, bias: true",
}
"""Settings of a model by the architecture of llama.cpp that computes it."""


def run_of(architecture: str, folder: Path, *overrides: str) -> Path:
    model = f"model={{kind: decoder, d_model: 16, n_layers: 2, n_heads: 2, init_std: 0.3, {MODELS[architecture]}}}"
    return trained(folder, model, "train.steps=2", BPE, *overrides)


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """An architecture, a run and its export."""
    folder = tmp_path_factory.mktemp(request.param)
    run = run_of(request.param, folder / "run")
    families.exported(run, folder / "out", "--to", "gguf", "--license", "mit")
    return request.param, run, folder / "out"


def test_the_tensors_of_the_file_give_the_logits_of_the_run(exported: tuple[str, Path, Path]) -> None:
    """By the operations of the architecture, in fp32; transformers repeats it for those that it reads."""
    architecture, _, out = exported
    parity = json.loads((out / "parity.json").read_text())
    assert parity["architecture"] == f"GGUF ({architecture})"
    assert parity["largest_difference"] < 1e-5 * max(1.0, parity["largest_output"])
    fields = gguf.GGUFReader(out / "model.gguf").fields
    assert fields["general.architecture"].contents() == architecture
    assert fields["general.license"].contents() == "mit"
    assert f"{architecture}.rope.freq_base" in fields or architecture == "gpt2"


def ids_of(fields: dict[str, Any], text: str) -> list[int]:
    """Byte-level BPE by the vocabulary and the merges of a file: of each word, the earliest merge first."""
    tokens = {token: id for id, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = {merge: rank for rank, merge in enumerate(fields["tokenizer.ggml.merges"].contents())}
    ids = []
    for word, _ in tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text):
        parts = list(word)
        while len(parts) > 1:
            ranks = [merges.get(f"{parts[n]} {parts[n + 1]}", len(merges)) for n in range(len(parts) - 1)]
            if min(ranks) == len(merges):
                break
            first = ranks.index(min(ranks))
            parts[first : first + 2] = ["".join(parts[first : first + 2])]
        ids += [tokens[part] for part in parts]
    return ids


def test_the_vocabulary_of_the_file_gives_the_ids_of_the_run(exported: tuple[str, Path, Path]) -> None:
    architecture, run, out = exported
    if architecture != "apertus":
        return  # the same tokenizer
    fields, tokenizer = gguf.GGUFReader(out / "model.gguf").fields, open_trained(run, device="cpu").tokenizer
    model, pre, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("model", "pre", "token_type"))
    assert (model, pre) == ("gpt2", "gpt-2")
    special = [id for id, type in enumerate(types) if type == gguf.TokenType.CONTROL]
    assert special == sorted(tokenizer.special_tokens.values())
    for text in (text for text in HOSTILE if "\ud800" not in text and max(map(len, text.split()), default=0) < 256):
        assert ids_of(fields, text) == tokenizer.encode(text).tolist(), ascii(text)


@pytest.mark.slow
def test_transformers_reads_the_file_with_equal_logits(exported: tuple[str, Path, Path], tmp_path: Path) -> None:
    """With the config.json of an export to the family, as transformers takes some keys of the file for its defaults."""
    architecture, run, out = exported
    if architecture not in ("llama", "qwen3", "gpt2"):
        pytest.skip("transformers reads no GGUF of this architecture")
    model = open_trained(run, device="cpu").model
    assert minitf("export", run, "-o", tmp_path / "hf", "--to", architecture).exit_code == 0
    config = transformers().AutoConfig.from_pretrained(tmp_path / "hf")
    options = {"gguf_file": "model.gguf", "config": config, "dtype": torch.float32}
    theirs = transformers().AutoModelForCausalLM.from_pretrained(out, **options)
    ids = torch.arange(4, 44).view(2, 20)
    with torch.no_grad():
        ours = model.logits(model(Tokens(ids)).y)
        torch.testing.assert_close(theirs(input_ids=ids).logits, ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [("{kind: byte}", "without merges"), ("{kind: unigram, vocab_size: 300}", "its model is Unigram")],
)
def test_a_tokenizer_that_llama_cpp_lacks_is_refused_by_name(tokenizer: str, reason: str, tmp_path: Path) -> None:
    run = run_of("apertus", tmp_path / "run", f"tokenizer={tokenizer}")
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "gguf")
    refused(done, "cannot be written as GGUF", reason, exit_code=5)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("long", [None, LongWavelengths(context=64, low=1.0, high=4.0)])
def test_scaled_rotations_divide_the_frequencies_as_here(long: LongWavelengths | None) -> None:
    keys = {"rope_type": "linear" if long is None else "llama3", "factor": 8.0, "rope_theta": 500.0}
    if long is not None:
        keys |= {"original_max_position_embeddings": 64, "low_freq_factor": 1, "high_freq_factor": 4}
    unscaled, scaled = (Rotary(16, 500.0, factor, long).frequencies(torch.device("cpu")) for factor in (1.0, 8.0))
    torch.testing.assert_close(unscaled / frequency_factors(keys, 16), scaled, rtol=1e-6, atol=0)


def test_a_model_that_no_architecture_computes_is_refused_with_all_reasons(tmp_path: Path) -> None:
    run = run_of("llama", tmp_path / "run", "model.activation=geglu")
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "gguf")
    reasons = ("llama has the activation silu, not gelu", "arcee has the activation relu, not gelu")
    refused(done, "llama.cpp has no LlamaForCausalLM like this one", *reasons, exit_code=5)
    assert not (tmp_path / "out").exists()


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
