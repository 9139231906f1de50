"""Runs as GGUF files: what is read back gives the outputs and the token ids of the run; and which recipes go out."""

import json
import re
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import families
import pytest
import tokenizers
import torch
from commands import minitf, refused, trained
from families import BERT, CLASSES, CONTEXT, DISTILBERT, made, transformers
from hostile import HOSTILE
from test_onnx import loaded

from mini_tf.hf.formats._gguf_architectures import frequency_factors
from mini_tf.hf.formats._gguf_vocabulary import LONG_WORDS, PATTERNS, _pre_tokenizer, vocabulary_of
from mini_tf.hf.formats.gguf import gguf_model
from mini_tf.hf.formats.onnx import graphs_of
from mini_tf.hf.model_folder import open_foreign
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


def test_a_tokenizer_that_llama_cpp_lacks_is_refused_by_name(tmp_path: Path) -> None:
    run = run_of("apertus", tmp_path / "run", "tokenizer={kind: unigram, vocab_size: 300}")
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "gguf")
    refused(done, "cannot be written as GGUF", "its model is Unigram", exit_code=5)
    assert not (tmp_path / "out").exists()


LLAMA3, QWEN2 = PATTERNS
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
WHOLE = BYTE_LEVEL | {"use_regex": False}


def bpe(*patterns: str, last: dict[str, Any] = BYTE_LEVEL, ignore: bool = False, **more: Any) -> dict[str, Any]:
    """What tokenizer.json says of a BPE that splits texts by these patterns."""
    steps = [*({"type": "Split", "pattern": {"Regex": pattern}} for pattern in patterns), last]
    model = {"type": "BPE", "merges": ["a b"], "ignore_merges": ignore}
    return {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "model": model, **more}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (bpe(), "gpt-2"),
        (bpe(LONG_WORDS), "gpt-2"),
        (bpe(LLAMA3, last=WHOLE, ignore=True), "llama-bpe"),
        (bpe(QWEN2, last=WHOLE), "qwen2"),
        *((content, None) for content in (bpe("[a-z]+"), bpe("[a-z]+", last=WHOLE), bpe(ignore=True), bpe(last=WHOLE))),
        *((content, None) for content in (bpe(LLAMA3, last=WHOLE), bpe(QWEN2, LLAMA3, last=WHOLE))),
        *((content, None) for content in (bpe(last=BYTE_LEVEL | {"add_prefix_space": True}), bpe(last={}))),
        (bpe(normalizer={"type": "NFC"}), None),
    ],
)
def test_texts_are_split_as_llama_cpp_splits_them_or_refused(content: dict[str, Any], word: str | None) -> None:
    if word is not None:
        assert _pre_tokenizer(content)[0] == word
        return
    with pytest.raises(RunFault, match=r"llama.cpp (has no tokenizer that splits texts as|does not change texts)"):
        _pre_tokenizer(content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "has no WordPiece that splits texts as"),
        (
            {"pre_tokenizer": {"pretokenizers": [{"type": "BertPreTokenizer"}, {"type": "Digits"}]}},
            "has no WordPiece that splits texts as",
        ),
        ({"normalizer": {"type": "Lowercase"}}, "does not change texts as"),
        ({"model": {"type": "WordPiece", "continuing_subword_prefix": "@@"}}, "marks tokens inside a word by ##"),
        ({"model": {"type": "BPE", "merges": []}}, "reads no vocabulary without merges"),
    ],
)
def test_a_vocabulary_that_llama_cpp_lacks_is_refused(change: dict[str, Any], reason: str) -> None:
    usual = {"normalizer": None, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    content = usual | {"model": {"type": "WordPiece", "continuing_subword_prefix": "##"}} | change
    run: Any = SimpleNamespace(tokenizer=SimpleNamespace(to_json=lambda: json.dumps(content)))
    with pytest.raises(RunFault, match=reason):
        vocabulary_of(run)


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


WORDS = ["the", "un", "##able", "##s", "a", "##a", "b", "##b", "c", "##c", "e", "##e", "n", "##n", ".", "'", "##t", "t"]
CHINESE = ["漢", "字", "é"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
V = len(SPECIAL + WORDS + CHINESE)
OWN = (
    "model={kind: encoder, d_model: 16, n_layers: 2, n_heads: 2, init_std: 0.3, norm: layer, norm_place: post, "
    "bias: true, embed_norm: true, positions: learned, head: bert, n_types: 2, activation: gelu_tanh}"
)


def bert_tokenizer() -> tokenizers.Tokenizer:
    """BERT's tokenizer with a few words."""
    vocabulary = {word: id for id, word in enumerate(SPECIAL + WORDS + CHINESE)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ids, pair = [("[CLS]", 2), ("[SEP]", 3)], "[CLS] $A [SEP] $B:1 [SEP]:1"
    inner.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", pair, ids)
    inner.add_special_tokens(SPECIAL)
    return inner


def encoder(architecture: str, folder: Path, **settings: Any) -> Path:
    """A tiny random model of transformers."""
    config = architecture.partition("For")[0].removesuffix("Model") + "Config"
    sizes = DISTILBERT if architecture.startswith("Distil") else BERT
    model = made(architecture, config, **sizes | {"vocab_size": V, "pad_token_id": 0} | settings)
    model.save_pretrained(folder / "theirs")
    bert_tokenizer().save(str(folder / "theirs" / "tokenizer.json"))
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    (folder / "theirs" / "tokenizer_config.json").write_text(json.dumps(names))
    return folder / "theirs"


def keys_of(run: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Keys of the file of a run, or of a model that is imported, the parity and what was said."""
    if run.name == "theirs":
        families.imported(run, folder / "run")
        run = folder / "run"
    done = minitf("export", run, "-o", folder / "out", "--to", "gguf")
    assert done.exit_code == 0, done.stderr
    fields = gguf.GGUFReader(folder / "out" / "model.gguf").fields
    keys = {name: field.contents() for name, field in fields.items()}
    return keys, json.loads((folder / "out" / "parity.json").read_text()), done.stderr


@pytest.mark.parametrize(
    ("architecture", "settings", "outputs"),
    [
        ("BertModel", {}, "hidden states"),
        ("BertForMaskedLM", {"hidden_act": "gelu_new", "type_vocab_size": 1}, "hidden states"),
        ("BertForSequenceClassification", CLASSES, "logits"),
        ("DistilBertModel", {}, "hidden states"),
    ],
)
def test_the_tensors_of_the_file_give_the_outputs_of_an_encoder(
    architecture: str, settings: dict[str, Any], outputs: str, tmp_path: Path
) -> None:
    keys, parity, said = keys_of(encoder(architecture, tmp_path, **settings), tmp_path)
    assert (parity["outputs"], parity["architecture"]) == (outputs, "GGUF (bert)")
    assert parity["largest_difference"] < 1e-5 * parity["largest_output"]
    assert ("GELU by tanh" in said) == (settings.get("hidden_act") != "gelu_new")
    classes = [*CLASSES["id2label"].values()] if outputs == "logits" else None
    assert keys["bert.pooling_type"] == (gguf.PoolingType.RANK if classes else gguf.PoolingType.MEAN)
    assert keys.get("bert.classifier.output_labels") == classes
    assert keys["bert.attention.causal"] is False
    assert keys["bert.context_length"] == CONTEXT


def wordpiece_ids(keys: dict[str, Any], text: str) -> list[int]:
    """llama.cpp's WordPiece: the longest token first, in words that begin with a space; a word without is unknown."""
    tokens = {token: id for id, token in enumerate(keys["tokenizer.ggml.tokens"])}
    if keys["tokenizer.ggml.normalizer.strip_accents"]:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    if keys["tokenizer.ggml.normalizer.lowercase"]:
        text = text.lower()
    ids: list[int] = []
    for word, _ in tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text):
        rest, pieces = f"▁{word}", []
        while rest:
            fitting = [rest[:end] for end in range(len(rest), 0, -1) if rest[:end] in tokens]
            if not fitting:
                pieces = [keys["tokenizer.ggml.unknown_token_id"]]
                break
            pieces.append(tokens[fitting[0]])
            rest = rest.removeprefix(fitting[0])
        ids += pieces
    return ids


def test_the_vocabulary_of_an_imported_bert_gives_its_ids(tmp_path: Path) -> None:
    source = encoder("BertModel", tmp_path)
    keys, _, _ = keys_of(source, tmp_path)
    ggml = {name.rpartition(".")[2]: value for name, value in keys.items() if name.startswith("tokenizer.ggml")}
    roles = {name: ggml[f"{name}_token_id"] for name in ("bos", "cls", "seperator", "unknown", "padding", "mask")}
    assert roles == {"bos": 2, "cls": 2, "seperator": 3, "unknown": 1, "padding": 0, "mask": 4}
    assert (ggml["model"], ggml["lowercase"], ggml["strip_accents"]) == ("bert", True, True)
    own = open_foreign(source).tokenizer
    for text in ("The UNABLE cat's Bé.", "ABC unables thes", "a\nb", "[CLS] a"):
        assert wordpiece_ids(keys, text) == own.encode(text).tolist(), text


def test_an_encoder_that_was_trained_here_goes_out_too(tmp_path: Path) -> None:
    """Its tokenizer keeps capitals, which a key of the file says."""
    wordpiece = "tokenizer={kind: wordpiece, vocab_size: 300}"
    run = trained(tmp_path / "run", OWN, "objective.kind=masked", wordpiece, "train.steps=2")
    keys, parity, said = keys_of(run, tmp_path)
    assert parity["largest_difference"] < 1e-5 * parity["largest_output"]
    assert keys["tokenizer.ggml.token_type_count"] == 2
    assert not keys["tokenizer.ggml.normalizer.lowercase"]
    assert "Chinese characters and control characters otherwise; it puts </s> behind a text, too; it keeps" in said
    own = open_trained(run, device="cpu").tokenizer
    for text in (text for text in HOSTILE if "\ud800" not in text and max(map(len, text.split()), default=0) <= 100):
        if not any(unicodedata.category(c) in ("Cc", "Cf", "Cn") for c in text) and "漢" not in text:
            assert wordpiece_ids(keys, text) == own.encode(text).tolist(), ascii(text)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("DistilBertForSequenceClassification", "the classifiers of bert have tanh"),
        ("BertForTokenClassification", "bert has vectors and classes of texts, not of tokens"),
    ],
)
def test_heads_that_llama_cpp_lacks_are_refused_by_name(architecture: str, reason: str, tmp_path: Path) -> None:
    source = encoder(architecture, tmp_path, **CLASSES)
    with pytest.raises(RunFault, match=reason) as fault:
        gguf_model(open_foreign(source).loaded(source), gguf)
    assert architecture in fault.value.message
