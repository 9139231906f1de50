"""Encoders as GGUF files: what is read back gives the hidden states, classes and token ids of the run."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import families
import pytest
from commands import minitf, refused, trained
from families import BERT, CLASSES, CONTEXT, DISTILBERT, made
from hostile import HOSTILE
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from mini_tf.trained.opening import open_trained

gguf = pytest.importorskip("gguf", reason="needs minitf[gguf]")
WORDS = ["the", "un", "##able", "##s", "a", "##a", "b", "##b", "c", "##c", "e", "##e", "n", "##n", ".", "'", "##t", "t"]
CHINESE = ["漢", "字", "é"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
V = len(SPECIAL + WORDS + CHINESE)
OWN = (
    "model={kind: encoder, d_model: 16, n_layers: 2, n_heads: 2, init_std: 0.3, norm: layer, norm_place: post, "
    "bias: true, embed_norm: true, positions: learned, head: bert, n_types: 2, activation: gelu_tanh}"
)


def tokenizer() -> Tokenizer:
    """BERT's tokenizer with a few words."""
    vocabulary = {word: id for id, word in enumerate(SPECIAL + WORDS + CHINESE)}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids, pair = [("[CLS]", 2), ("[SEP]", 3)], "[CLS] $A [SEP] $B:1 [SEP]:1"
    inner.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", pair, ids)
    inner.add_special_tokens(SPECIAL)
    return inner


def imported(architecture: str, folder: Path, **settings: Any) -> Path:
    """A run with a tiny random model of transformers."""
    config = architecture.partition("For")[0].removesuffix("Model") + "Config"
    sizes = DISTILBERT if architecture.startswith("Distil") else BERT
    model = made(architecture, config, **sizes | {"vocab_size": V, "pad_token_id": 0} | settings)
    model.save_pretrained(folder / "theirs")
    tokenizer().save(str(folder / "theirs" / "tokenizer.json"))
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    (folder / "theirs" / "tokenizer_config.json").write_text(json.dumps(names))
    families.imported(folder / "theirs", folder / "run")
    return folder / "run"


def exported(run: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Keys of the file, the parity and what was said."""
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
    keys, parity, said = exported(imported(architecture, tmp_path, **settings), tmp_path)
    assert (parity["outputs"], parity["architecture"]) == (outputs, "GGUF (bert)")
    assert parity["largest_difference"] < 1e-5 * parity["largest_output"]
    assert ("GELU by tanh" in said) == (settings.get("hidden_act") != "gelu_new")
    classes = [*CLASSES["id2label"].values()] if outputs == "logits" else None
    assert keys["bert.pooling_type"] == (gguf.PoolingType.RANK if classes else gguf.PoolingType.MEAN)
    assert keys.get("bert.classifier.output_labels") == classes
    assert keys["bert.attention.causal"] is False
    assert keys["bert.context_length"] == CONTEXT


def ids_of(keys: dict[str, Any], text: str) -> list[int]:
    """llama.cpp's WordPiece: the longest token first, in words that begin with a space; a word without is unknown."""
    tokens = {token: id for id, token in enumerate(keys["tokenizer.ggml.tokens"])}
    if keys["tokenizer.ggml.normalizer.strip_accents"]:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    if keys["tokenizer.ggml.normalizer.lowercase"]:
        text = text.lower()
    ids: list[int] = []
    for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text):
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
    run = imported("BertModel", tmp_path)
    keys, _, _ = exported(run, tmp_path)
    ggml = {name.rpartition(".")[2]: value for name, value in keys.items() if name.startswith("tokenizer.ggml")}
    roles = {name: ggml[f"{name}_token_id"] for name in ("bos", "cls", "seperator", "unknown", "padding", "mask")}
    assert roles == {"bos": 2, "cls": 2, "seperator": 3, "unknown": 1, "padding": 0, "mask": 4}
    assert (ggml["model"], ggml["lowercase"], ggml["strip_accents"]) == ("bert", True, True)
    own = open_trained(run, device="cpu").tokenizer
    for text in ("The UNABLE cat's Bé.", "ABC unables thes", "a\nb", "[CLS] a"):
        assert ids_of(keys, text) == own.encode(text).tolist(), text


def test_an_encoder_that_was_trained_here_goes_out_too(tmp_path: Path) -> None:
    """Its tokenizer keeps capitals, which a key of the file says."""
    wordpiece = "tokenizer={kind: wordpiece, vocab_size: 300}"
    run = trained(tmp_path / "run", OWN, "objective.kind=masked", wordpiece, "train.steps=2")
    keys, parity, said = exported(run, tmp_path)
    assert parity["largest_difference"] < 1e-5 * parity["largest_output"]
    assert keys["tokenizer.ggml.token_type_count"] == 2
    assert not keys["tokenizer.ggml.normalizer.lowercase"]
    assert "Chinese characters and control characters otherwise; it puts </s> behind a text, too; it keeps" in said
    own = open_trained(run, device="cpu").tokenizer
    for text in (text for text in HOSTILE if "\ud800" not in text and max(map(len, text.split()), default=0) <= 100):
        if not any(unicodedata.category(c) in ("Cc", "Cf", "Cn") for c in text) and "漢" not in text:
            assert ids_of(keys, text) == own.encode(text).tolist(), ascii(text)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("DistilBertForSequenceClassification", "the classifiers of bert have tanh"),
        ("BertForTokenClassification", "bert has vectors and classes of texts, not of tokens"),
    ],
)
def test_heads_that_llama_cpp_lacks_are_refused_by_name(architecture: str, reason: str, tmp_path: Path) -> None:
    run = imported(architecture, tmp_path, **CLASSES)
    refused(minitf("export", run, "-o", tmp_path / "out", "--to", "gguf"), architecture, reason, exit_code=5)
