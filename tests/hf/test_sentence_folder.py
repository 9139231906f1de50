"""Folders of sentence-transformers: vectors are those of transformers and the documented pooling, in and out."""

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import torch.nn.functional as F
from commands import QUIET, minitf, refused
from families import exported, folder_of, imported, transformers
from tokenizers.processors import TemplateProcessing

from mini_tf.hf.importing import open_model
from mini_tf.trained.opening import open_trained
from mini_tf.trained.text_vectors import Embedder

TEXTS = ["w7 w8 w9", "w40", "w11 w12 w13 w14 w15 w16 w17 w18 w19 w20 w21", "w9 w8 w7"]
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
LENGTH = 9
BASE = "bert without a head"
POST_NORM = (
    "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, bias: true, norm_place: post, embed_norm: true,"
    " n_types: 2, dropout_rate: 0.1, positions: {kind: learned}}"
)


def write(folder: Path, name: str, values: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(values))


def sentence_folder(folder: Path, pooling: dict[str, Any], *further: str, case: str = BASE) -> Path:
    """A tiny model of BERT with the modules Transformer, Pooling and `further` ones."""
    folder_of(case, folder)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    write(folder, "tokenizer_config.json", special | {"tokenizer_class": "PreTrainedTokenizerFast"})
    kinds = ("Transformer", "Pooling", *further)
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    write(folder, "modules.json", modules)
    write(folder, "sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})
    write(folder, "1_Pooling/config.json", pooling)
    return folder


def reference(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """The vectors by transformers, and the pooling that sentence-transformers documents."""
    with torch.no_grad():
        model = transformers().AutoModel.from_pretrained(folder).eval()
        tokenizer = transformers().AutoTokenizer.from_pretrained(folder)
        length = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
        batch = tokenizer([*texts], padding=True, truncation=True, max_length=length, return_tensors="pt")
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None].float()
    keys = json.loads((folder / "1_Pooling" / "config.json").read_text())
    modes = [mode for mode, key in MODES.items() if keys.get(f"pooling_mode_{key}")] or [keys["pooling_mode"]]
    vectors = {
        "cls": hidden[:, 0],
        "mean": (hidden * mask).sum(1) / mask.sum(1),
        "max": hidden.masked_fill(mask == 0, -1e9).amax(1),
        "lasttoken": hidden[torch.arange(len(hidden)), mask[..., 0].sum(1).long() - 1],
    }[modes[0]]
    normalized = json.loads((folder / "modules.json").read_text())[2:]
    return np.asarray(F.normalize(vectors, dim=-1) if normalized else vectors)


def embedded(run: Path) -> np.ndarray:
    return Embedder(open_trained(run, device="cpu")).embed(TEXTS).numpy()


@pytest.mark.parametrize("mode", MODES)
def test_pooling_normalization_and_length_come_in_and_go_out(mode: str, tmp_path: Path) -> None:
    legacy = {"word_embedding_dimension": 16} | {f"pooling_mode_{key}": name == mode for name, key in MODES.items()}
    newer = {"embedding_dimension": 16, "pooling_mode": mode, "include_prompt": True}
    run, out = tmp_path / "run", tmp_path / "out"
    cases = ((legacy, (), BASE), (newer, ("Normalize",), "bert"))  # whose masked-LM head is left out
    for number, (pooling, further, case) in enumerate(cases):
        source = sentence_folder(tmp_path / f"theirs{number}", pooling, *further, case=case)
        expected = reference(source, TEXTS)
        assert (np.linalg.norm(expected, axis=1).round(5) == 1).all() == bool(further)
        vectors = Embedder(open_model(source, "cpu", str)).embed(TEXTS).numpy()
        assert vectors == pytest.approx(expected, abs=1e-5)
        if [*MODES].index(mode) % 2 == number:  # the other half goes out in the same way
            imported(source, run)
            exported(run, out)
            for again in (embedded(run), reference(out, TEXTS), _by_their_package(out)):
                assert again == pytest.approx(expected, abs=1e-5)


def _by_their_package(folder: Path) -> np.ndarray:
    """The vectors by sentence-transformers; where it is not installed, by `reference`."""
    if find_spec("sentence_transformers") is None:
        return reference(folder, TEXTS)
    from sentence_transformers import SentenceTransformer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def test_a_run_that_was_trained_here_gives_its_vectors_there(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": f"w{n} w{n + 1} w{n + 2}", "positive": f"w{n + 1}"}) + "\n" for n in range(40))
    (tmp_path / "rows.jsonl").write_text(rows)
    objective = "objective={kind: contrastive, pool: first, normalize: false, group: 4}"
    more = ("tokenizer={kind: wordpiece, vocab_size: 120}", "train={steps: 2, batch_size: 2, context: 64}", *QUIET)
    data = (f"data.train={tmp_path / 'rows.jsonl'}", "data.split=25%")
    assert minitf("pretrain", *data, POST_NORM, objective, *more, "-d", tmp_path / "run").exit_code == 0
    assert minitf("export", tmp_path / "run", "-o", tmp_path / "out").exit_code == 0
    vectors = embedded(tmp_path / "run")
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert reference(tmp_path / "out", TEXTS) == pytest.approx(vectors, abs=1e-5)
    assert _by_their_package(tmp_path / "out") == pytest.approx(vectors, abs=1e-5)
    assert minitf("import", tmp_path / "out", "-o", tmp_path / "again").exit_code == 0
    assert embedded(tmp_path / "again") == pytest.approx(vectors, abs=1e-6)


DENSE = {"type": "sentence_transformers.models.Dense"}
MEAN = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
REFUSED: dict[str, tuple[str, Any, str]] = {
    "a pooling": ("1_Pooling/config.json", MEAN | {"pooling_mode_weightedmean_tokens": True}, "weightedmean_tokens"),
    "two poolings": ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "minitf has one pooling"),
    "a key of the pooling": ("1_Pooling/config.json", MEAN | {"layer": 2}, "layer"),
    "lower case": ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
    "a prompt": ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name"),
    "a module": ("modules.json", {"changed": 2, "to": DENSE}, "minitf has Transformer, Pooling, Normalize"),
    "a folder of the model": ("modules.json", {"changed": 0, "to": {"path": "0_T"}}, "its model is in 0_T"),
    "no list": ("modules.json", {"a": 1}, "not a list of modules: it must be a JSON array of objects"),
    "no objects": ("modules.json", [1], "not a list of modules: it must be a JSON array of objects"),
    "no type": ("modules.json", [{"path": ""}], "a module has no key 'type'"),
    "no module": ("modules.json", [], "and the modules are none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_minitf_does_not_have_is_refused_by_name(case: str, tmp_path: Path) -> None:
    source = sentence_folder(tmp_path / "theirs", MEAN, "Normalize")
    name, values, message = REFUSED[case]
    if isinstance(values, dict) and "changed" in values:
        modules = json.loads((source / name).read_text())
        modules[values["changed"]] |= values["to"]
        values = modules
    write(source, name, values)
    refused(minitf("import", source, "-o", tmp_path / "run"), message, exit_code=5)
    assert not (tmp_path / "run").exists()
