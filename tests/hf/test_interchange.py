"""Models of Hugging Face as runs, and runs as their folders: the same outputs and the same tensors, both ways."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from commands import QUIET, content, minitf, refused, results, trained
from families import CASES, V, change_config, exported, folder_of, imported, transformers, written
from safetensors.torch import load_file, save_file

import mini_tf
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.hf.families import gpt2
from mini_tf.hf.model_folder import open_foreign
from mini_tf.hf.proof import compare, make_batch
from mini_tf.system.errors import UsageFault

EXACT = 1e-5


def without_prefix(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A decoder without a head comes out as one whose head is its embedding: with other names of the same tensors."""
    return {re.sub(r"^(model|transformer|bert)\.", "", name): tensor for name, tensor in tensors.items()}


BY_COMMANDS = [
    *("llama", "qwen3, tied, classes", "gpt2 without a head", "bert", "bert, tags", "modernbert, numbers", "electra"),
    *("bart", "t5 1.1", "perceiver"),
]
"""Cases whose run folders differ in more than their family."""


@pytest.mark.parametrize("case", CASES)
def test_a_model_comes_in_and_goes_out_unchanged(case: str, tmp_path: Path) -> None:
    source, run, out = folder_of(case, tmp_path / "theirs"), tmp_path / "run", tmp_path / "out"
    config = json.loads((source / "config.json").read_text())
    family = config["model_type"].replace("-", "_")
    if case in BY_COMMANDS:
        parity, again = imported(source, run), exported(run, out, "--to", family)
        tokens = json.loads((out / "tokenizer_config.json").read_text())
        assert ("token_type_ids" in tokens.get("model_input_names", [])) == (config.get("type_vocab_size", 0) > 1)
        assert case != "bert" or tokens["sep_token"] == "</s>"
    else:
        foreign = open_foreign(source)
        batch = make_batch(foreign.model, foreign.tokenizer.vocabulary)
        parity = compare(foreign.model, foreign.head, batch, source).to_json()
        out.mkdir()
        again = written(foreign.loaded(source), family, out).to_json()
    assert parity["reader"].startswith("transformers")
    assert parity["architecture"] == CASES[case][0]
    assert parity["largest_difference"] < EXACT
    assert {"whole", "padded"} <= parity["cases"].keys()
    assert ("pairs" in parity["cases"]) == (config.get("type_vocab_size", 0) > 1)
    assert ("padded sources" in parity["cases"]) == config.get("is_encoder_decoder", False)
    outputs = "hidden states" if case.endswith("without a head") else "logits"
    assert (parity["outputs"], parity["precision"]) == (outputs, "fp32")
    assert again["reader"].startswith("transformers")
    assert again["largest_difference"] < EXACT
    before, after = (without_prefix(load_file(folder / "model.safetensors")) for folder in (source, out))
    for name in ("cls.predictions.bias", "lm_head.bias"):  # of an untied head another bias is added
        if name.replace("bias", "decoder.bias") in before:
            before.pop(name)
    changed = {name for name, tensor in before.items() if name in after and not torch.equal(after[name], tensor)}
    for name in changed:
        # Rows before the first position are never read; the scale of T5's output is part of the norm's weight, and the
        # epsilon of Qwen3's norms of queries and keys part of their matrices.
        first = 2 if "position" in name else 0
        scaled = ("q_proj", "k_proj") if case.startswith("qwen3") else ("decoder.final_layer_norm",)
        assert first or any(part in name for part in scaled)
        torch.testing.assert_close(after[name][first:], before[name][first:], rtol=1e-6, atol=0)
    left_out = before.keys() - after.keys()
    assert all("pooler" in name or "seq_relationship" in name for name in left_out)
    added = after.keys() - before.keys() - {"cls.predictions.bias", "lm_head.bias"}
    assert added <= {"head.dense.bias"}  # a bias of 0
    assert not any(after[name].count_nonzero() for name in added)
    theirs = transformers().AutoConfig.from_pretrained(out)
    assert (theirs.vocab_size, theirs.architectures) == (V, [again["architecture"]])


@pytest.mark.parametrize(("case", "start"), [("bart", 1), ("t5", 4)])
def test_greedy_translation_is_theirs_token_by_token(case: str, start: int, tmp_path: Path) -> None:
    """From the decoder's first token on, which config.json names."""
    source, run = folder_of(case, tmp_path / "theirs"), tmp_path / "run"
    change_config(source, {"decoder_start_token_id": start})
    imported(source, run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14 w15 w16 w17"]
    done = minitf("generate", run, *texts, "--num-beams", "1", "--max-new-tokens", "12", "--json")
    found = [result["texts"][0] for result in results(done.stdout)]
    model = getattr(transformers(), CASES[case][0]).from_pretrained(source)
    for text, ours in zip(texts, found, strict=True):
        ids = torch.tensor([[*(int(word[1:]) for word in text.split()), 2]])
        more = {"do_sample": False, "num_beams": 1, "max_new_tokens": 12, "forced_eos_token_id": None}
        more |= {"decoder_start_token_id": start, "suppress_tokens": [0, 1, 3, 4], "pad_token_id": 0}
        new = model.generate(ids, **more)[0, 1:]
        assert ours.split() == [f"w{id}" for id in new.tolist() if id > 4]
        assert ours


@pytest.mark.parametrize("case", ["bart", "marian", "t5 1.1"])
def test_beam_search_is_theirs_without_a_length_penalty(case: str, tmp_path: Path) -> None:
    """All hypotheses and scores, if theirs goes on while a better one is possible; ours may have the greedy one."""
    source, run = broken(folder_of(case, tmp_path / "theirs"), with_frequent_ends), tmp_path / "run"
    change_config(source, {"decoder_start_token_id": 2 if case == "bart" else 0})
    imported(source, run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14 w15 w16 w17", "w40"]
    options = ("--length-penalty", "0", "--max-new-tokens", "10", "--json")
    found = results(minitf("generate", run, *texts, "--num-beams", "4", "--n-best", "4", *options).stdout)
    greedy = results(minitf("generate", run, *texts, "--num-beams", "1", *options).stdout)
    model = getattr(transformers(), CASES[case][0]).from_pretrained(source)
    start = model.config.decoder_start_token_id
    more = {"do_sample": False, "num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0}
    more |= {"max_new_tokens": 10, "decoder_start_token_id": start, "forced_eos_token_id": None, "pad_token_id": 0}
    more |= {"early_stopping": "never", "suppress_tokens": [0, 1, 3, 4]}
    more |= {"return_dict_in_generate": True, "output_scores": True}
    ended = 0
    for text, ours, single in zip(texts, found, greedy, strict=True):
        ids = torch.tensor([[*(int(word[1:]) for word in text.split()), 2]])
        new = model.generate(ids, **more)
        sequences = [[f"w{id}" for id in sequence if id > 4] for sequence in new.sequences[:, 1:].tolist()]
        theirs = {tuple(words): score for words, score in zip(sequences, new.sequences_scores.tolist(), strict=True)}
        theirs.setdefault(tuple(single["texts"][0].split()), single["scores"][0])
        ranked = sorted(theirs.items(), key=lambda item: -item[1])[:4]
        assert [tuple(one.split()) for one in ours["texts"]] == [words for words, _ in ranked]
        assert ours["scores"] == pytest.approx([score for _, score in ranked], abs=1e-4)
        ended += sum(len(sequence) < 10 for sequence in sequences)
    assert ended or case == "t5 1.1"  # which has no bias of the output


def with_frequent_ends(tensors: dict[str, torch.Tensor]) -> None:
    if "final_logits_bias" in tensors:
        tensors["final_logits_bias"][0, 2] += 4


def test_fine_tuning_begins_with_a_folder_or_with_the_run_that_it_became(tmp_path: Path) -> None:
    source, rows = folder_of("bert", tmp_path / "theirs"), tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"w{5 + n % 9} w{20 + n % 7}\t{'ab'[n % 2]}\n" for n in range(40)))
    imported(source, tmp_path / "run")
    keys = (
        f"data={{train: {rows}, val: null, split: 25%, fields: {{text: text, label: label}}}}",
        *("train.steps=1", "train.context=16", "train.batch_size=4", *QUIET),
        "optimizer={kind: adamw, lr: 1e-12, weight_decay: 0}",
    )
    before = load_file(tmp_path / "run" / "model.safetensors")
    for name, start in (("of folder", source), ("of run", tmp_path / "run")):
        done = minitf("finetune", "sst2-nano", *keys, f"model.init_from={start}", "-d", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert "head.linear.weight" in done.stderr  # alone with its bias it is new
        weights = load_file(tmp_path / name / "model.safetensors")
        for key, tensor in before.items():
            if not key.startswith("head."):
                torch.testing.assert_close(weights[key], tensor, rtol=0, atol=1e-9)


def test_ids_that_the_tokenizer_lacks_are_added_by_an_import_alone(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    content = json.loads((source / "tokenizer.json").read_text())
    content["model"]["vocab"] = {token: id for token, id in content["model"]["vocab"].items() if id < 45}
    (source / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "text.txt").write_text("\n\n".join(f"w{5 + n % 40} w{5 + n % 7} w9" for n in range(60)))
    data = f"data.train={tmp_path / 'text.txt'}"
    keys = (f"model.init_from={source}", data, "train.context=24", *QUIET)
    begun = minitf("pretrain", "quickstart", *keys, "-d", tmp_path / "run")
    refused(begun, "has more ids than its tokenizer", "minitf import", exit_code=3)
    done = minitf("import", source, "-o", tmp_path / "run")
    assert "the model has 3 more ids than the tokenizer" in done.stderr
    assert Tokenizer.load(tmp_path / "run").vocabulary.size == V


def broken(folder: Path, change: Any) -> Path:
    """A folder whose tensors were changed."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return folder


POSITIONS = "transformer.wpe.weight"


BAD_TENSORS: list[tuple[dict[str, Any], str]] = [
    ({"transformer.h.1.ln_1.bias": None}, "h.1.ln_1.bias is missing"),
    ({"extra": torch.zeros(2)}, "extra is not known"),
    ({POSITIONS: torch.zeros(39, 16)}, "wpe.weight is [39, 16] float32, not [40, 16]"),
    ({POSITIONS: torch.zeros(40, 16, dtype=torch.long)}, "wpe.weight is [40, 16] int64"),
    ({POSITIONS: torch.full((40, 16), torch.nan)}, "not finite"),
]


@pytest.mark.parametrize(("changed", "message"), BAD_TENSORS)
def test_tensors_that_are_not_those_of_the_config_are_refused(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors |= changed
        for name in [name for name, tensor in tensors.items() if tensor is None]:
            del tensors[name]

    source = broken(folder_of("gpt2", tmp_path / "theirs"), change)
    refused(minitf("import", source, "-o", tmp_path / "run"), message, exit_code=5)
    assert not (tmp_path / "run").exists()


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "code": ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
    "exported code": ({"model_type": "minitf", "auto_map": {}}, "code of a model is never run; of an export --to code"),
    "another family": ({"model_type": "gpt3"}, "did you mean gpt2?"),
    "no family": ({"model_type": 7}, "minitf reads bart, bert"),
    "another architecture": ({"architectures": ["GPT2DoubleHeadsModel"]}, "of gpt2 minitf has GPT2LMHeadModel"),
    "another size": ({"n_inner": 17}, "is [16, 64] float32, not [16, 17]"),
    "fewer ids than the tokenizer": ({"vocab_size": 40}, "the tokenizer has 48 ids, the model 40"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_config_that_does_not_map_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    changes, message = BAD_CONFIGS[case]
    source = folder_of("gpt2", tmp_path / "theirs", **changes)
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, message, exit_code=4 if "tokenizer has" in message else 5)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_place_of_a_run_is_answered_by_import(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    for command in (("generate", source, "w9"), ("export", source, "-o", tmp_path / "out")):
        refused(minitf(*command), "is not a run folder", f"`minitf import {source}` makes a run", exit_code=5)


def test_a_source_that_is_no_model_folder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "empty").mkdir()
    for name, what in (("none", "not a folder"), ("file", "not a folder"), ("empty", "it has no config.json")):
        done = minitf("import", tmp_path / name, "-o", tmp_path / "run")
        refused(done, f"{name}: {what}", "save_pretrained", exit_code=5)
    source = folder_of("gpt2", tmp_path / "theirs")
    done = minitf("import", source, "--base", source, "-o", tmp_path / "run")
    refused(done, "is no adapter", "leave --base out", exit_code=2)
    assert not (tmp_path / "run").exists()


def test_several_safetensors_files_are_read_by_their_index(tmp_path: Path) -> None:
    source = folder_of("llama", tmp_path / "theirs")
    tensors = load_file(source / "model.safetensors")
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, source / file)
    (source / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    assert imported(source, tmp_path / "run")["largest_difference"] < EXACT
    save_file({name: tensors[name] for name in names[::3]}, source / "model-00002-of-00002.safetensors")
    refused(minitf("import", source, "-o", tmp_path / "bad"), "is given twice", exit_code=5)
    for bad in ("../theirs/model.bin", "/etc/passwd", "model.bin"):
        (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": bad}}))
        done = minitf("import", source, "-o", tmp_path / "bad")
        refused(done, "is not a safetensors file of this folder", exit_code=5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model-00001-of-00002.safetensors", ("one of several files, but no model.safetensors.index.json",)),
        ("weights.safetensors", ("weights.safetensors, but no model.safetensors", "rename it to model.safetensors")),
        ("pytorch_model.bin", ("pytorch_model.bin, a pickle file, which can run code", "save_pretrained")),
        (None, ("theirs has no model.safetensors", "save_pretrained")),
    ],
)
def test_weights_under_other_names_are_refused_with_what_is_missing(
    name: str | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    (source / "model.safetensors").rename(source / name if name else tmp_path / "elsewhere")
    refused(minitf("import", source, "-o", tmp_path / "run"), *words, exit_code=5)


def test_half_precision_comes_in_as_fp32_and_old_names_are_known(tmp_path: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name).half()

    source = broken(folder_of("bert", tmp_path / "theirs"), change)
    weights = load_file(source / "model.safetensors")
    imported(source, tmp_path / "run")
    found = load_file(tmp_path / "run" / "model.safetensors")["embedding.norm.weight"]
    assert torch.equal(found, weights["bert.embeddings.LayerNorm.gamma"].float())


def test_a_run_that_no_family_has_is_refused_by_name_and_its_tensors_go_out(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1", "model.attention=window")
    done = minitf("export", run, "-o", tmp_path / "out")
    refused(done, "model.attention.kind is window", "--to safetensors", exit_code=5)
    assert not (tmp_path / "out").exists()
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "safetensors")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    refused(minitf("export", run, "-o", tmp_path / "out", "--to", "safetensors"), "not an empty folder", exit_code=5)
    refused(minitf("export", run, "-o", tmp_path / "other", "--to", "gpt3"), "must be one of auto, bart", exit_code=2)
    refused(minitf("export", run, "-o", tmp_path / "other", "--to", "onx"), "; did you mean onnx?", exit_code=2)
    refused(minitf("export", run, "-o", tmp_path / "other", "--to", "peft"), "has no adapter", exit_code=2)
    alone = minitf("export", run, "-o", tmp_path / "other", "--to", "llama")
    refused(alone, "cannot be written as llama: ", "model.attention.kind is window", exit_code=5)
    other = minitf("export", run, "-o", tmp_path / "other", "--to", "bert")
    refused(other, "bert has no model of the architecture decoder with the objective next_token", exit_code=5)
    refused(minitf("import", run, "-o", tmp_path / "other"), "a run of minitf", exit_code=5)
    refused(minitf("export", run, "-o", tmp_path / "other", "--license", "mit\n---"), "--license", exit_code=2)
    assert len(alone.stderr.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_a_tagger_with_wide_features_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text("".join(f"{word}\tO\nbat\tB-x\n\n" for word in "abcdefgh"))
    model = "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}"
    wide = "objective={kind: tag, wide: {order: 1, window: 1, scale: 1}}"
    tagger = (model, wide, "tokenizer={kind: wordpiece, vocab_size: 120}")
    data = f"data={{train: {tmp_path / 'tags.conll'}, val: null, split: 25%}}"
    done = minitf("finetune", "tag-nano", data, *tagger, "train.steps=1", *QUIET, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    done = minitf("export", tmp_path / "run", "-o", tmp_path / "out", "--to", "bert")
    refused(done, "objective.wide is", exit_code=5)
    assert not (tmp_path / "out").exists()


def test_outputs_that_differ_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    monkeypatch.setattr(gpt2.Settings, "FIXED", gpt2.Settings.FIXED | {"norm_eps": 0.1})
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, "the logits differ by up to", "by case whole", exit_code=5)
    assert not (tmp_path / "run").exists()


def test_what_transformers_cannot_load_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    imported(source, tmp_path / "run")

    def fail(*arguments: Any, **more: Any) -> None:
        raise ValueError("no such head")

    monkeypatch.setattr(transformers().GPT2LMHeadModel, "from_pretrained", fail)
    (tmp_path / "empty").mkdir()
    run = tmp_path / "run"
    for command, given, folder in (("import", source, "again"), ("export", run, "out"), ("export", run, "empty")):
        done = minitf(command, given, "-o", tmp_path / folder)
        refused(done, "transformers cannot load it: ValueError: no such head", exit_code=5)
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "run", "empty"}
    assert not [*(tmp_path / "empty").iterdir()]


def test_a_folder_with_other_files_is_refused_by_both_commands(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    imported(source, tmp_path / "run")
    refused(minitf("import", source, "-o", source), "is not empty", exit_code=5)
    before = content(tmp_path / "run")
    again = minitf("import", source, "-o", tmp_path / "run")  # the same run once more is no other
    assert (again.exit_code, again.stdout) == (0, f"{tmp_path / 'run'}\n")
    changed = {name for name, known in content(tmp_path / "run").items() if known != before.get(name)}
    assert not {name for name in changed if name.endswith(".safetensors")}
    broken(source, lambda tensors: tensors["transformer.wpe.weight"].add_(1))
    other = minitf("import", source, "-o", tmp_path / "run")
    refused(other, "run", exit_code=5)  # another model is another run, whose files are not read
    assert "is not the tensor" not in other.stderr
    assert content(tmp_path / "run").keys() == before.keys()
    refused(minitf("export", tmp_path / "run", "-o", source), "not an empty folder", exit_code=5)


def test_without_transformers_the_files_are_read_back_by_minitf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(folder_of("bert, tags", tmp_path / "theirs"), tmp_path / "run")
    monkeypatch.setitem(sys.modules, "transformers", None)
    parity = exported(tmp_path / "run", tmp_path / "out")
    assert (parity["reader"], parity["largest_difference"]) == ("minitf", 0.0)
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlicense: unknown\n")
    assert "No metrics were recorded." in card
    assert "Imported; its training data are not known to minitf; 0 training steps." in card


@pytest.fixture
def cached_on_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the hub's client, offline, with the model tests/tiny."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path / "cache"
    folder_of("bert", cache / "models--tests--tiny" / "snapshots" / ("0" * 40))
    (cache / "models--tests--tiny" / "refs").mkdir()
    (cache / "models--tests--tiny" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


def test_a_model_of_the_hub_is_taken_from_the_cache_and_else_not_available(cached_on_hub: Path, tmp_path: Path) -> None:
    done = minitf("import", "hf:tests/tiny", "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    shown = minitf("recipe", "show", "bert-nano", "model.init_from=hf:tests/tiny", "train.context=32")
    assert str(cached_on_hub) in shown.stdout
    for name, code in (("hf:tests/other", 9), ("hf:../etc/passwd", 2), ("hf:../a", 2), ("hf:a/b/c", 2)):
        refused(minitf("import", name, "-o", tmp_path / "no"), name, exit_code=code)


def test_ids_of_imported_tokenizers_are_theirs(tmp_path: Path) -> None:
    tiny = tokenizers_of_every_file(tmp_path)
    for folder, theirs in tiny.items():
        ours = Tokenizer.load(folder)
        for text in NASTY:
            expected = theirs(text, add_special_tokens=False)["input_ids"]
            assert ours.encode(text).tolist() == expected, (folder.name, text)


NASTY = ["", " ", "  ", "\t", "\n\n", " a", "a ", "a  b", "naïve café Ångström", "漢字かな", "🙂👨\u200d👩\u200d👧"]
NASTY += ["\x00\x01\x7f", "\u00ad\ufeff", "don't can't", "3.14 1,000", "ÀÉ e\u0301", "ﬁ ①", "مرحبا", "a\u00a0b"]
NASTY += ["<s> </s> [MASK]x", "x" * 200]


def tokenizers_of_every_file(folder: Path) -> dict[Path, Any]:
    """Folders with a vocab.txt, and with a vocab.json and merges.txt, and transformers' tokenizers of them."""
    text = ["the cat sat on the mat, don't you see? naïve café 漢字 🙂 3.14", "A B C a b c e"] * 5
    piece = tokenizers.BertWordPieceTokenizer(lowercase=True)
    piece.train_from_iterator(text, vocab_size=120, show_progress=False)
    byte = tokenizers.ByteLevelBPETokenizer()
    byte.train_from_iterator(text, vocab_size=300, show_progress=False, special_tokens=["<|endoftext|>"])
    for name, trained_one in (("Bert", piece), ("GPT2", byte)):
        (folder / name).mkdir()
        trained_one.save_model(str(folder / name))
    (folder / "Bert" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    classes = {folder / name: getattr(transformers(), f"{name}TokenizerFast") for name in ("Bert", "GPT2")}
    return {path: fast.from_pretrained(path, split_special_tokens=True) for path, fast in classes.items()}


def test_a_model_of_hugging_face_is_opened_where_it_lies(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.warns(mini_tf.ResultWarning, match="the tokenizer would encode <pad>") as warned:
        run = mini_tf.load(source)
    assert {warning.filename for warning in warned} == {__file__}
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert minitf("import", source, "-o", tmp_path / "run").exit_code == 0
    options: dict[str, Any] = {"greedy": True, "max_new_tokens": 5}
    texts, as_run = ["w5 w9", "w7"], mini_tf.load(tmp_path / "run")
    assert run.generate(texts, **options) == as_run.generate(texts, **options)
    assert run.metrics == {}
    with pytest.raises(UsageFault, match="is no run of minitf and has no checkpoints"):
        mini_tf.load(source, step="last")
