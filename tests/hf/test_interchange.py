"""Models of Hugging Face as runs, and runs as their folders: the same outputs and the same tensors, both ways."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from commands import QUIET, content, minitf, refused, trained
from families import CASES, V, change_config, folder_of, transformers
from safetensors.torch import load_file, save_file

import mini_tf
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.hf.families import gpt2
from mini_tf.system.errors import UsageFault

EXACT = 1e-5
SHARED = Path(os.environ.get("MINITF_SHARED", Path(__file__).parents[2] / "../shared"))


def imported(source: Path, run: Path) -> dict[str, Any]:
    """Import a folder; the content of parity.json."""
    done = minitf("import", source, "-o", run)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{run}\n"
    return json.loads((run / "parity.json").read_text())  # type: ignore[no-any-return]


def without_prefix(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A decoder without a head comes out as one whose head is its embedding: with other names of the same tensors."""
    return {re.sub(r"^(model|transformer|bert)\.", "", name): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_model_comes_in_and_goes_out_unchanged(case: str, tmp_path: Path) -> None:
    source, run, out = folder_of(case, tmp_path / "theirs"), tmp_path / "run", tmp_path / "out"
    parity = imported(source, run)
    assert parity["reader"].startswith("transformers")
    assert parity["architecture"] == CASES[case][0]
    assert parity["largest_difference"] < EXACT
    assert {"whole", "padded"} <= parity["cases"].keys()
    config = json.loads((source / "config.json").read_text())
    assert ("pairs" in parity["cases"]) == (config.get("type_vocab_size", 0) > 1)
    assert ("padded sources" in parity["cases"]) == config.get("is_encoder_decoder", False)
    assert (parity["outputs"], parity["precision"]) == (
        "hidden states" if case.endswith("without a head") else "logits",
        "fp32",
    )
    done = minitf("export", run, "-o", out, "--to", config["model_type"].replace("-", "_"))
    assert done.exit_code == 0, done.stderr
    assert "loaded by transformers" in done.stderr
    assert json.loads((out / "parity.json").read_text())["largest_difference"] < EXACT
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
    left_out = {
        name for name in before.keys() - after.keys() if "pooler" not in name and "seq_relationship" not in name
    }
    assert left_out == set()
    added = after.keys() - before.keys() - {"cls.predictions.bias", "lm_head.bias"}
    assert added <= {"head.dense.bias"}  # a bias of 0
    assert not any(after[name].count_nonzero() for name in added)
    theirs = transformers().AutoConfig.from_pretrained(out)
    assert (theirs.vocab_size, theirs.architectures) == (
        V,
        [json.loads((out / "parity.json").read_text())["architecture"]],
    )


@pytest.mark.parametrize("case", ["bart", "marian", "t5", "t5 1.1"])
def test_greedy_translation_is_theirs_token_by_token(case: str, tmp_path: Path) -> None:
    """From the decoder's first token on, which config.json names."""
    source, run = folder_of(case, tmp_path / "theirs"), tmp_path / "run"
    change_config(source, {"decoder_start_token_id": {"bart": 1, "t5": 4}.get(case, 0)})
    imported(source, run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14 w15 w16 w17"]
    done = minitf("generate", run, *texts, "--num-beams", "1", "--max-new-tokens", "12", "--json")
    found = [json.loads(line)["result"]["texts"][0] for line in done.stdout.splitlines()]
    model = getattr(transformers(), CASES[case][0]).from_pretrained(source)
    start = model.config.decoder_start_token_id
    for text, ours in zip(texts, found, strict=True):
        ids = torch.tensor([[*(int(word[1:]) for word in text.split()), 2]])
        more = {
            "do_sample": False,
            "num_beams": 1,
            "max_new_tokens": 12,
            "decoder_start_token_id": start,
            "forced_eos_token_id": None,
        }
        new = model.generate(ids, suppress_tokens=[0, 1, 3, 4], pad_token_id=0, **more)[0, 1:]
        assert ours.split() == [f"w{id}" for id in new.tolist() if id > 4]
        assert ours


@pytest.mark.parametrize("case", ["bart", "marian", "t5 1.1"])
def test_beam_search_is_theirs_without_a_length_penalty(case: str, tmp_path: Path) -> None:
    """All hypotheses and scores, if theirs goes on while a better one is possible; ours may have the greedy one."""
    source, run = broken(folder_of(case, tmp_path / "theirs"), with_frequent_ends), tmp_path / "run"
    change_config(source, {"decoder_start_token_id": 2 if case == "bart" else 0})
    imported(source, run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14 w15 w16 w17", "w40", "w8 w7 w6 w5 w25"]
    options = ("--num-beams", "4", "--n-best", "4", "--length-penalty", "0", "--max-new-tokens", "10")
    done = minitf("generate", run, *texts, *options, "--json")
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line)["result"] for line in done.stdout.splitlines()]
    lines = minitf(
        "generate", run, *texts, "--num-beams", "1", "--length-penalty", "0", "--max-new-tokens", "10", "--json"
    ).stdout
    greedy = [json.loads(line)["result"] for line in lines.splitlines()]
    model = getattr(transformers(), CASES[case][0]).from_pretrained(source)
    start = model.config.decoder_start_token_id
    more = {
        "do_sample": False,
        "num_beams": 4,
        "num_return_sequences": 4,
        "length_penalty": 0.0,
        "early_stopping": "never",
    }
    more |= {"max_new_tokens": 10, "decoder_start_token_id": start, "forced_eos_token_id": None, "pad_token_id": 0}
    ended = 0
    for text, ours, single in zip(texts, found, greedy, strict=True):
        ids = torch.tensor([[*(int(word[1:]) for word in text.split()), 2]])
        new = model.generate(
            ids, suppress_tokens=[0, 1, 3, 4], return_dict_in_generate=True, output_scores=True, **more
        )
        sequences = [[f"w{id}" for id in sequence if id > 4] for sequence in new.sequences[:, 1:].tolist()]
        theirs = {tuple(words): score for words, score in zip(sequences, new.sequences_scores.tolist(), strict=True)}
        theirs |= (
            {}
            if tuple(single["texts"][0].split()) in theirs
            else {tuple(single["texts"][0].split()): single["scores"][0]}
        )
        ranked = sorted(theirs.items(), key=lambda item: -item[1])[:4]
        assert [tuple(one.split()) for one in ours["texts"]] == [words for words, _ in ranked]
        assert ours["scores"] == pytest.approx([score for _, score in ranked], abs=1e-4)
        ended += sum(len(sequence) < 10 for sequence in sequences)
    assert ended or case == "t5 1.1"  # which has no bias of the output


def with_frequent_ends(tensors: dict[str, torch.Tensor]) -> None:
    if "final_logits_bias" in tensors:
        tensors["final_logits_bias"][0, 2] += 4


def test_a_real_model_of_stories_comes_in_tells_one_and_goes_out_byte_for_byte(tmp_path: Path) -> None:
    stories, run = SHARED / "data" / "stories260k", tmp_path / "stories"
    if not stories.exists():
        pytest.skip("shared/data is not here")
    assert imported(stories, run)["largest_difference"] < 1e-4
    done = minitf("evaluate", run, "--data", stories / "tinystories_sample.txt", "--assert", "bits_per_byte<0.95")
    assert done.exit_code == 0, done.stderr
    told = minitf("generate", run, "Once upon a time", "--greedy", "--max-new-tokens", "30").stdout
    assert "there was a little girl named" in told
    assert minitf("export", run, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (stories / "model.safetensors").read_bytes()


def test_fine_tuning_begins_with_a_folder_or_with_the_run_that_it_became(tmp_path: Path) -> None:
    source, rows = folder_of("bert", tmp_path / "theirs"), tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"w{5 + n % 9} w{20 + n % 7}\t{'ab'[n % 2]}\n" for n in range(40)))
    imported(source, tmp_path / "run")
    for name, start in (("of folder", source), ("of run", tmp_path / "run")):
        keys = (
            "data.val=null",
            "data.split=25%",
            "data.fields={text: text, label: label}",
            "train.steps=1",
            "train.context=16",
            "train.batch_size=4",
            "optimizer={kind: adamw, lr: 1e-12, weight_decay: 0}",
            *QUIET,
        )
        done = minitf(
            "finetune", "sst2-nano", f"data.train={rows}", *keys, f"model.init_from={start}", "-d", tmp_path / name
        )
        assert done.exit_code == 0, done.stderr
        assert "head.linear.weight" in done.stderr  # alone with its bias it is new
        weights, before = (
            load_file(tmp_path / name / "model.safetensors"),
            load_file(tmp_path / "run" / "model.safetensors"),
        )
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
    begun = minitf(
        "pretrain", "quickstart", f"model.init_from={source}", data, "train.context=24", *QUIET, "-d", tmp_path / "run"
    )
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


def narrowed(tensors: dict[str, torch.Tensor]) -> None:
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:-1]


def as_integers(tensors: dict[str, torch.Tensor]) -> None:
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"].long()


def with_a_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors["transformer.wpe.weight"][0, 0] = torch.nan


BAD_TENSORS = {
    "missing": (lambda tensors: tensors.pop("transformer.h.1.ln_1.bias"), "h.1.ln_1.bias is missing"),
    "unknown": (lambda tensors: tensors.update(extra=torch.zeros(2)), "extra is not known"),
    "narrow": (narrowed, "wpe.weight is [39, 16] float32, not [40, 16]"),
    "no numbers with a fraction": (as_integers, "wpe.weight is [40, 16] int64"),
    "not finite": (with_a_nan, "not finite"),
    "a tie that is none": (
        lambda tensors: tensors.update({"lm_head.weight": torch.zeros(V, 16)}),
        "lm_head.weight differs from wte.weight, and a gpt2 model of this config.json has one tensor for both",
    ),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_tensors_that_are_not_those_of_the_config_are_refused(case: str, tmp_path: Path) -> None:
    change, message = BAD_TENSORS[case]
    source = broken(folder_of("gpt2", tmp_path / "theirs"), change)
    refused(minitf("import", source, "-o", tmp_path / "run"), message, exit_code=5)
    assert not (tmp_path / "run").exists()


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "code": ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
    "exported code": (
        {"model_type": "minitf", "auto_map": {"AutoModel": "modeling_minitf.A"}},
        "code of a model is never run; of an export --to code take the run",
    ),
    "another family": ({"model_type": "gpt3"}, "did you mean gpt2?"),
    "no family": ({"model_type": 7}, "minitf reads bart, bert"),
    "another architecture": ({"architectures": ["GPT2DoubleHeadsModel"]}, "of gpt2 minitf has GPT2LMHeadModel"),
    "another activation": ({"activation_function": "mish"}, "activation_function is 'mish'"),
    "another scale": ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is true"),
    "a size that is none": ({"n_layer": "2"}, "n_layer is '2'; it must be a whole number"),
    "heads that do not divide": ({"n_head": 5}, "5 does not divide d_model 16"),
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


def test_rotations_that_older_files_scale_are_read_and_others_refused(tmp_path: Path) -> None:
    source = folder_of(
        "llama",
        tmp_path / "theirs",
        rope_parameters=None,
        rope_theta=500.0,
        rope_scaling={"type": "linear", "factor": 2.0},
    )
    parity = imported(source, tmp_path / "run")
    assert parity["largest_difference"] < EXACT
    assert "factor: 2.0" in (tmp_path / "run" / "recipe.yaml").read_text()
    change_config(source, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}})
    refused(
        minitf("import", source, "-o", tmp_path / "no"),
        "rope_type is 'yarn'; minitf has default, linear, llama3",
        exit_code=5,
    )


def test_a_source_that_is_no_model_folder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "empty").mkdir()
    for name, what in (("none", "not a folder"), ("file", "not a folder"), ("empty", "it has no config.json")):
        refused(
            minitf("import", tmp_path / name, "-o", tmp_path / "run"), f"{name}: {what}", "save_pretrained", exit_code=5
        )
    source = folder_of("gpt2", tmp_path / "theirs")
    refused(
        minitf("import", source, "--base", source, "-o", tmp_path / "run"),
        "is no adapter",
        "leave --base out",
        exit_code=2,
    )
    assert not (tmp_path / "run").exists()


def test_pickle_files_are_never_opened(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    (source / "training_args.bin").write_bytes(b"")
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, "pytorch_model.bin, a pickle file, which can run code", "save_pretrained", exit_code=5)


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
        refused(
            minitf("import", source, "-o", tmp_path / "bad"), "is not a safetensors file of this folder", exit_code=5
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "model-00001-of-00002.safetensors",
            ("model-00001-of-00002.safetensors, one of several files, but no model.safetensors.index.json",),
        ),
        ("weights.safetensors", ("weights.safetensors, but no model.safetensors", "rename it to model.safetensors")),
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
            half = tensors.pop(name).half()
            tensors[
                re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name))
            ] = half

    source = broken(folder_of("bert", tmp_path / "theirs"), change)
    weights = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    done = minitf("import", source, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    found = load_file(tmp_path / "run" / "model.safetensors")["embedding.norm.weight"]
    assert torch.equal(found, weights["bert.embeddings.LayerNorm.gamma"])


def test_a_run_that_no_family_has_is_refused_by_name_and_its_tensors_go_out(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1", "model.attention=window")
    refused(
        minitf("export", run, "-o", tmp_path / "out"), "model.attention.kind is window", "--to safetensors", exit_code=5
    )
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
    tagger = (
        "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}",
        "objective={kind: tag, wide: {order: 1, window: 1, scale: 1}}",
    )
    data = (
        f"data.train={tmp_path / 'tags.conll'}",
        "data.val=null",
        "data.split=25%",
        "train.steps=1",
        "tokenizer={kind: wordpiece, vocab_size: 120}",
    )
    done = minitf("finetune", "tag-nano", *data, *tagger, *QUIET, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    refused(
        minitf("export", tmp_path / "run", "-o", tmp_path / "out", "--to", "bert"), "objective.wide is", exit_code=5
    )
    assert not (tmp_path / "out").exists()


def test_outputs_that_differ_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    monkeypatch.setattr(
        gpt2.Settings, "settings", lambda self, config, head: ORIGINAL(self, config, head) | {"norm_eps": 0.1}
    )
    refused(
        minitf("import", source, "-o", tmp_path / "run"), "the logits differ by up to", "by case whole", exit_code=5
    )
    assert not (tmp_path / "run").exists()


ORIGINAL = gpt2.Settings.settings


def test_what_transformers_cannot_load_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    imported(source, tmp_path / "run")

    def fail(*arguments: Any, **more: Any) -> None:
        raise ValueError("no such head")

    monkeypatch.setattr(transformers().GPT2LMHeadModel, "from_pretrained", fail)
    (tmp_path / "empty").mkdir()
    for command, given, folder in (
        ("import", source, "again"),
        ("export", tmp_path / "run", "out"),
        ("export", tmp_path / "run", "empty"),
    ):
        refused(
            minitf(command, given, "-o", tmp_path / folder),
            "transformers cannot load it: ValueError: no such head",
            exit_code=5,
        )
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
    done = minitf("export", tmp_path / "run", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    parity = json.loads((tmp_path / "out" / "parity.json").read_text())
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


NASTY = (
    *(
        "",
        " ",
        "  ",
        "\t",
        "\n\n",
        " a",
        "a ",
        "a  b",
        "naïve café Ångström",
        "漢字かな",
        "🙂👨\u200d👩\u200d👧",
        "\x00\x01\x7f",
        "\u00ad\ufeff",
    ),
    *("don't can't", "3.14 1,000", "ÀÉ e\u0301", "ﬁ ①", "مرحبا", "a\u00a0b", "<s> </s> [MASK]x", "x" * 200),
)


def tokenizers_of_every_file(folder: Path) -> dict[Path, Any]:
    """Folders with a vocab.txt, and with a vocab.json and merges.txt, and transformers' tokenizers of them."""
    text = ["the cat sat on the mat, don't you see? naïve café 漢字 🙂 3.14", "A B C a b c e"] * 5
    piece = tokenizers.BertWordPieceTokenizer(lowercase=True)
    piece.train_from_iterator(text, vocab_size=120, show_progress=False)
    byte = tokenizers.ByteLevelBPETokenizer()
    byte.train_from_iterator(text, vocab_size=300, show_progress=False, special_tokens=["<|endoftext|>"])
    found = {}
    for name, one in (("wordpiece", piece), ("bytes", byte)):
        (folder / name).mkdir()
        one.save_model(str(folder / name))
    (folder / "wordpiece" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    found[folder / "wordpiece"] = transformers().BertTokenizerFast.from_pretrained(
        folder / "wordpiece", split_special_tokens=True
    )
    found[folder / "bytes"] = transformers().GPT2TokenizerFast.from_pretrained(
        folder / "bytes", split_special_tokens=True
    )
    return found


def test_an_adapter_goes_out_in_pefts_format_and_comes_in_added_to_its_base(tmp_path: Path) -> None:
    source, out = folder_of("llama, grouped queries, wide heads, tied", tmp_path / "base"), tmp_path / "adapter"
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"w{5 + n % 40} w{5 + n % 7} w{5 + n % 11} w9" for n in range(60)))
    keys = (
        f"model.init_from={source}",
        f"data.train={text}",
        "train.context=16",
        "train.batch_size=4",
        "train.steps=3",
    )
    lora = (
        "adapter={kind: lora, rank: 3, alpha: 5}",
        "optimizer={kind: adamw, lr: 0.05}",
        "objective.kind=next_token",
        *QUIET,
    )
    done = minitf("pretrain", "quickstart", *keys, *lora, "-d", tmp_path / "tuned")
    assert done.exit_code == 0, done.stderr
    done = minitf("export", tmp_path / "tuned", "-o", out, "--to", "peft")
    assert done.exit_code == 0, done.stderr
    config, tensors = (
        json.loads((out / "adapter_config.json").read_text()),
        load_file(out / "adapter_model.safetensors"),
    )
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (3, 5.0, str(source))
    assert config["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    parity = imported(out, tmp_path / "again")
    assert parity["reader"].startswith("transformers")
    assert parity["largest_difference"] < EXACT
    # By PEFT's own definition: W + B A alpha / r, in the modules that the names name.
    model = transformers().LlamaForCausalLM.from_pretrained(source)
    for name in (name for name in tensors if "lora_A" in name):
        delta = tensors[name.replace("lora_A", "lora_B")] @ tensors[name] * 5 / 3
        model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")).weight.data += delta
        assert delta.abs().max() > 1e-3
    assert minitf("export", tmp_path / "tuned", "-o", tmp_path / "merged").exit_code == 0
    merged = transformers().LlamaForCausalLM.from_pretrained(tmp_path / "merged")
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-6)
    change_adapter = json.dumps(config | {"use_dora": True})
    (out / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(tmp_path / "again")}))
    refused(minitf("import", out, "-o", tmp_path / "no"), "its base is a run", "--base names", exit_code=5)
    (out / "adapter_config.json").write_text(change_adapter)
    refused(minitf("import", out, "-o", tmp_path / "no"), "use_dora is true", exit_code=5)
    refused(minitf("export", tmp_path / "again", "-o", tmp_path / "no", "--to", "peft"), "has no adapter", exit_code=2)


def test_a_model_of_hugging_face_is_opened_where_it_lies(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.warns(mini_tf.ResultWarning, match="the tokenizer would encode <pad>"):
        run = mini_tf.load(source)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert minitf("import", source, "-o", tmp_path / "run").exit_code == 0
    options: dict[str, Any] = {"greedy": True, "max_new_tokens": 5}
    assert run.generate(["w5 w9", "w7"], **options) == mini_tf.load(tmp_path / "run").generate(
        ["w5 w9", "w7"], **options
    )
    assert run.metrics == {}
    with pytest.raises(UsageFault, match="is no run of minitf and has no checkpoints"):
        mini_tf.load(source, step="last")
