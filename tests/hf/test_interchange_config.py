"""Every key of a config.json is read, known to change no output, or refused by its name; without transformers too."""

import copy
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, minitf, refused
from families import CASES, IDS, LINEAR, LLAMA3, SIDES, change_config, folder_of, made, saved, transformers
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from mini_tf.data.examples import Labels
from mini_tf.hf import proof
from mini_tf.hf.config_json import MOST_FAULTS, NO_EFFECT
from mini_tf.hf.families import Config, their_word
from mini_tf.hf.families._architectures import ACTIVATIONS
from mini_tf.hf.families._architectures import WORDS as SIDES_WORDS
from mini_tf.hf.families.t5 import WORDS as T5_WORDS
from mini_tf.hf.model_folder import ForeignModel, open_foreign
from mini_tf.hf.tokenizer_config import begin_token, special_token
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault

FIRST = {}
for _case, (_, _config, _settings) in CASES.items():
    FIRST.setdefault(_config, _case)
"""The first case of each family, by the class of its configuration."""


def compared(folder: Path, foreign: ForeignModel) -> proof.Parity:
    """Our outputs with those of transformers."""
    batch = proof.make_batch(foreign.model, foreign.tokenizer.vocabulary)
    parity = proof.compare(foreign.model, foreign.head, batch, folder)
    assert parity.reader.startswith("transformers")
    return parity


def difference(folder: Path, foreign: ForeignModel) -> float:
    """The largest, by the largest output."""
    parity = compared(folder, foreign)
    return parity.largest_difference / parity.largest_output


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value / 2 + 0.1 if isinstance(value, float) else value


@pytest.mark.parametrize("config", FIRST)
def test_keys_without_effect_change_no_output_of_transformers(config: str) -> None:
    """All of them at once, of those that the class of the configuration has."""
    model = made(CASES[FIRST[config]][0], config, **IDS | CASES[FIRST[config]][2])
    known: Any = kinds_of("hf.families")[model.config.model_type.replace("-", "_")]
    unread = {key for key in model.config.to_dict() if re.fullmatch(f"{NO_EFFECT}|{known.NO_EFFECT}", key)}
    # Where a family reads them.
    read = {"tie_word_embeddings", "is_decoder", "is_encoder_decoder", "decoder_start_token_id"}
    read |= {"decoder_bias", "classifier_activation", "classifier_bias", "pad_token_id"}
    values = copy.deepcopy(model.config.to_dict())
    changed = {key: other(values[key]) for key in unread - read if other(values[key]) != values[key]}
    changed |= {"summary_type": "mean"} if "summary_type" in unread else {}
    assert len(changed) > 3
    again = made(CASES[FIRST[config]][0], config, **values | changed)
    again.load_state_dict(model.state_dict())
    for part in again.modules():
        if hasattr(part, "config"):
            part.config.return_dict = True  # as the proof has it
    ids = torch.tensor([[9, 30, 17, 5, 11, 40], [12, 12, 7, 33, 21, 8]])
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if values["is_encoder_decoder"] else {})
    with torch.no_grad():
        before, after = (network.double()(**inputs) for network in (model, again))
    first = "last_hidden_state" if "last_hidden_state" in before else "logits"
    torch.testing.assert_close(after[first], before[first], rtol=0, atol=1e-12)  # alignment may change the last bits


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"mixture": 3}, "mixture is 3; minitf does not read this key, which may change the outputs"),
    ("llama", {"rope_parameters": LINEAR | {"mscale": 2}}, "rope_parameters.mscale is 2; minitf does not read"),
    ("llama", {"quantization_config": {"bits": 4}}, 'quantization_config is {"bits": 4}; minitf reads no quantized'),
    ("bert", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is true; minitf has false"),
    ("roberta", {"is_decoder": True, "add_cross_attention": True}, "add_cross_attention is true"),
    ("roberta", {"is_decoder": True}, "is_decoder is true; minitf has false"),
    ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder is false; minitf has true"),
    ("bart", {"tie_encoder_decoder": True}, "tie_encoder_decoder is true; minitf has false"),
    ("bert", {"cross_attention_hidden_size": 8}, "cross_attention_hidden_size is 8; minitf has no such setting"),
    ("bert", {"pruned_heads": {"0": [1]}}, 'pruned_heads is {"0": [1]}'),
    ("llama", {"rope_parameters": YARN}, "rope_type is 'yarn'; minitf has default, linear, llama3"),
    ("gpt_neox", {"rope_parameters": YARN}, "rope_type is 'yarn'"),
    ("llama", {"rope_parameters": LINEAR | {"rope_type": "default"}}, "factor is 4.0; minitf does not read"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0}}, "rope_parameters.factor is nothing"),
    ("llama", {"rope_parameters": {**LLAMA3, "low_freq_factor": None}}, "rope_parameters.low_freq_factor is nothing"),
    ("marian", {"decoder_vocab_size": 60}, "decoder_vocab_size is 60; of models with two vocabularies"),
    ("marian", {"decoder_vocab_size": 40}, "decoder_vocab_size is 40; of models with two vocabularies"),
    ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings is 2; it must be a whole number from 3"),
    ("modernbert", {"mlp_bias": True}, "mlp_bias is true; minitf has biases in all layers or in none"),
    ("modernbert, biases, wide windows", {"norm_bias": False}, "norm_bias is false; minitf has biases in all"),
    ("modernbert", {"layer_types": ["full_attention"] * 4 + ["conv"]}, "must be full_attention or sliding_attention"),
    ("modernbert", {"layer_types": 5}, "layer_types is 5"),
    ("llama", {"mlp_bias": True}, "mlp_bias is true; minitf has biases in all linear layers or in none"),
    ("llama", {"rope_scaling": LINEAR}, "rope_scaling is {"),
    ("llama", {"rope_parameters": LINEAR | {"type": "llama3"}}, "type is 'llama3'; it is another name"),
    ("llama", {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved is true; minitf has false"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("gpt_neox, classes", {"rope_parameters": None, "rotary_pct": 0.4}, "of 8 dimensions of a head it rotates 3"),
    ("gpt_neox, classes", {"rope_parameters": None, "rotary_pct": 0.1}, "rotates 0"),
    ("gpt_neox, classes", {"rope_parameters": {"partial_rotary_factor": 1.25}}, "rotates 10"),
    ("gpt_neox, classes", {"rope_parameters": {"partial_rotary_factor": 1e308}}, "rotates 16777216, which"),
    ("modernbert", {"local_attention": 1}, "local_attention is 1; it must be a whole number from 2"),
    ("modernbert", {"rope_scaling": LINEAR}, "rope_scaling is {"),
    ("modernbert", {"rope_parameters": {"sliding_attention": LINEAR}}, "sliding_attention.rope_type is 'linear'"),
    ("modernbert", {"layer_types": ["full_attention"] * 4}, 'layer_types is ["full_attention", '),
    ("modernbert", {"sliding_window": 2}, "sliding_window is 2"),
    ("t5", {"dense_act_fn": "silu"}, "dense_act_fn is 'silu'; minitf has 'relu'"),
    ("t5", {"is_gated_act": True}, "is_gated_act is true; minitf has false"),
    ("t5 1.1", {"is_gated_act": None}, "is_gated_act is nothing; minitf has true"),
    ("t5", {"scale_decoder_outputs": None}, "scale_decoder_outputs is nothing; it must be true or false"),
    ("gpt2", {"scale_attn_weights": None}, "scale_attn_weights is nothing; minitf has true"),
    ("gpt2", {"hidden_size": 8}, "hidden_size is 8; it is another name of n_embd, which is 16"),
    ("t5", {"head_dim": 8}, "head_dim is 8; it is another name of d_kv, which is 5"),
    ("bart", {"normalize_before": True}, "normalize_before is true"),
    ("bart", {"normalize_embedding": False}, "normalize_embedding is false; minitf has true"),
    ("gpt2", {"per_layer_config": {"0": {"n_head": 2}}}, "per_layer_config"),
    ("gpt2", {"architectures": ["GPT2LMHeadModel", "GPT2Model"]}, '["GPT2LMHeadModel", "GPT2Model"]; of gpt2'),
    ("gpt2, classes", {"pad_token_id": 7}, "pad_token_id is 7; the last token of a text is found by it"),
    ("bert, classes", {"problem_type": "multi_label_classification"}, "problem_type is 'multi"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ("gpt2", {"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ("bert", {"tie_word_embeddings": False}, "cls.predictions.decoder.weight is missing"),
    ("marian", {"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ("modernbert", {"classifier_bias": True}, "head.dense.bias is missing"),
    ("modernbert, biases, wide windows", {"classifier_bias": False}, "head.dense.bias is not known"),
]


@pytest.mark.parametrize(("case", "changes", "message"), REFUSED)
def test_what_minitf_does_not_have_is_refused_by_its_key(
    case: str, changes: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any comparison: transformers is not there."""
    source = folder_of(case, tmp_path, **changes)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RunFault) as fault:
        open_foreign(source)
    assert any(message in line for line in fault.value.faults), fault.value.faults
    assert all(len(line) < 400 for line in fault.value.faults)


OLDER = {"rope_parameters": None}
"""Older files have other keys for it, or the defaults."""
GPT2_NAMES = ("n_embd", "n_head", "n_layer", "n_positions")
LENGTHS = {"num_hidden_layers": 2, "max_position_embeddings": 40}
SMOLLM2 = {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}}
CROSS_ENCODER = {
    "sbert_ce_default_activation_function": "torch.nn.Identity",
    "sentence_transformers": {"version": "4.1"},
}
READ: list[tuple[str, dict[str, Any]]] = [
    ("gpt_neox, classes", OLDER),
    ("gpt_neox, classes", OLDER | {"rotary_pct": 0.5}),
    ("gpt_neox, classes", OLDER | {"rotary_pct": 0.2}),  # of one dimension, for which a pair is rotated
    ("gpt_neox, classes", {"rope_parameters": LINEAR, "rotary_pct": 1.0}),
    ("gpt_neox, classes", OLDER | {"rope_scaling": LINEAR | {"partial_rotary_factor": 0.5}}),
    ("gpt_neox, classes", OLDER | {"rotary_emb_base": 55, "rotary_pct": 1.0}),
    ("llama", OLDER | {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_parameters": LINEAR, "rope_scaling": LINEAR}),
    ("llama", {"rope_parameters": LINEAR | {"type": "linear"}}),
    ("llama", {"partial_rotary_factor": 1.0}),
    ("llama", SMOLLM2 | {"unsloth_fixed": True}),
    # The common names of sizes, and both names of one.
    ("gpt2", dict.fromkeys(GPT2_NAMES) | {"hidden_size": 16, "num_attention_heads": 4} | LENGTHS),
    ("distilbert", {"dim": None, "hidden_size": 16, "num_attention_heads": 4, "n_heads": 4}),
    ("t5", {"d_kv": None, "head_dim": 5, "num_heads": None, "num_attention_heads": 4}),
    ("bart", {"d_model": None, "hidden_size": 16, "normalize_embedding": True, "num_hidden_layers": 3}),
    ("modernbert", {"local_attention": 7}),
    ("modernbert", {"local_attention": 2}),
    ("modernbert", OLDER | {"global_rope_theta": 50.0, "local_rope_theta": 20.0}),
    ("modernbert", OLDER),
    ("modernbert", {"layer_types": None, "global_attn_every_n_layers": 2}),
    ("modernbert", {"layer_types": None}),
    ("modernbert", {"layer_norm_eps": 0.5, "position_embedding_type": "absolute"}),  # as its file says
    ("t5 1.1", {"dense_act_fn": "gelu_new", "is_gated_act": True}),
    ("t5 1.1", {"tie_word_embeddings": False, "scale_decoder_outputs": None}),
    ("gpt2", {"n_ctx": 40, "n_special": 0, "predict_special_tokens": True}),  # as the larger files say
    ("bert, classes", CROSS_ENCODER),
]


@pytest.mark.parametrize(("case", "changes"), READ)
def test_a_key_means_what_it_means_to_transformers(case: str, changes: dict[str, Any], tmp_path: Path) -> None:
    source = folder_of(case, tmp_path)
    path = source / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    assert difference(source, open_foreign(source)) < 1e-5


SIZES = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 20}
SIZES |= {"max_position_embeddings": 40}
DISTIL_SIZES = {"dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": 40}
T5_SIZES = {"d_model": 16, "d_kv": 4, "num_heads": 2, "d_ff": 20, "num_layers": 2}
WITHOUT_LENGTH = {key: value for key, value in SIDES.items() if key != "max_position_embeddings"}
MINIMAL: dict[str, tuple[str, dict[str, Any], int]] = {
    "BertConfig": ("BertForMaskedLM", SIZES, 40),
    "RobertaConfig": ("RobertaForMaskedLM", SIZES | {"pad_token_id": 1}, 38),
    "ElectraConfig": ("ElectraForMaskedLM", SIZES, 40),
    "DistilBertConfig": ("DistilBertForMaskedLM", DISTIL_SIZES, 40),
    "ModernBertConfig": ("ModernBertForMaskedLM", SIZES, 40),
    "LlamaConfig": ("LlamaForCausalLM", SIZES, 40),
    "GPTNeoXConfig": ("GPTNeoXForCausalLM", SIZES | {"hidden_size": 32}, 40),
    "GPT2Config": ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}, 40),
    "T5Config": ("T5ForConditionalGeneration", T5_SIZES, 512),
    "BartConfig": ("BartForConditionalGeneration", WITHOUT_LENGTH, 1024),
    "MarianConfig": ("MarianMTModel", WITHOUT_LENGTH, 1024),
}
"""By the class of the configuration: an architecture, the keys that minitf requires, and the longest text."""


@pytest.mark.parametrize("config", MINIMAL)
def test_an_absent_key_has_the_default_of_transformers(config: str, tmp_path: Path) -> None:
    architecture, settings, context = MINIMAL[config]
    source = saved(made(architecture, config, **IDS | settings), tmp_path)
    path = source / "config.json"
    values = json.loads(path.read_text())
    required = {"model_type": values["model_type"], "architectures": [architecture], **IDS, **settings}
    path.write_text(json.dumps({key: value for key, value in required.items() if value is not None}))
    foreign = open_foreign(source)
    assert difference(source, foreign) < 1e-5
    assert foreign.recipe.train.context == context
    model: Any = foreign.recipe.model
    theirs = getattr(transformers(), config)(**settings)
    for eps in ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps"):
        assert model.norm_eps == getattr(theirs, eps, model.norm_eps)
    positions = model.positions.model_dump()
    if (rope := getattr(theirs, "rope_parameters", None)) and "rope_theta" in rope:
        assert positions["base"] == rope["rope_theta"]
    elif rope:
        assert {*positions["layer_bases"]} == {section["rope_theta"] for section in rope.values()}
        assert model.attention[1].window == theirs.local_attention // 2
    if config == "T5Config":
        assert (positions["n_buckets"], positions["max_distance"]) == (32, 128)


TIES = ["gpt2", "llama, grouped queries, wide heads, tied", "gpt_neox, one after the other", "bert", "roberta"]
TIES += [case for case in ("distilbert", "electra generator", "modernbert", "bart", "marian", "t5") if case in CASES]


@pytest.mark.parametrize("case", TIES)
def test_files_may_have_all_names_of_one_tensor(case: str, tmp_path: Path) -> None:
    """As files of older versions have; whichever of them is another tensor is refused by its name."""
    source = folder_of(case, tmp_path)
    foreign = open_foreign(source)
    family, weights = foreign.family, foreign.model.weights()
    path = source / "model.safetensors"
    tensors = load_file(path)
    tied = {
        re.sub(r"^\.", family.PREFIX, name): re.sub(r"^\.", family.PREFIX, first) for name, first in family.TIED.items()
    }
    while missing := [name for name, first in tied.items() if name not in tensors and first in tensors]:
        tensors |= {name: tensors[tied[name]].clone() for name in missing}
    assert tied.keys() <= tensors.keys()
    save_file(tensors, path)
    assert_close(dict(open_foreign(source).model.weights()), dict(weights), rtol=0, atol=0)
    message = f" differs from .*, and a {family.kind} model of this config.json has one tensor for both"
    for name in tied:
        save_file(tensors | {name: tensors[name] + 1}, path)
        with pytest.raises(RunFault, match=message):
            open_foreign(source)


def test_the_first_five_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    source = folder_of("gpt2", tmp_path, n_layer=3)  # a layer has twelve
    with pytest.raises(RunFault, match=r"(h\.2\.\S+ is missing, ){4}h\.2\.\S+ is missing \(and 7 more\)$"):
        open_foreign(source)
    tensors = load_file(source / "model.safetensors")
    layer = {name.replace(".1.", ".2."): tensor.clone() for name, tensor in tensors.items() if ".1." in name}
    save_file(tensors | dict([*layer.items()][5:]), source / "model.safetensors")
    with pytest.raises(RunFault, match=r"(h\.2\.\S+ is missing, ){4}h\.2\.\S+ is missing$"):
        open_foreign(source)


def test_labels_are_those_of_id2label(tmp_path: Path) -> None:
    assert open_foreign(folder_of("bert, classes", tmp_path / "a")).labels == Labels(
        ("bad", "good", "so-so"), (0, 0, 0)
    )
    twice = folder_of("bert, classes", tmp_path / "b", id2label={"0": "bad", "1": "good", "2": "bad"})
    with pytest.raises(RunFault, match=r"id2label is .*; the names of labels must be different"):
        open_foreign(twice)


@pytest.mark.parametrize("case", ["bert", "bart", "gpt2"])
def test_a_difference_is_counted_in_its_case_and_not_at_padding(case: str, tmp_path: Path) -> None:
    foreign = open_foreign(folder_of(case, tmp_path))
    model, batch = foreign.model, proof.make_batch(foreign.model, foreign.tokenizer.vocabulary)
    ours, lengths, longest = proof.own_outputs(model, foreign.head, batch), batch.mask.sum(1), batch.mask.shape[1]
    assert (lengths[:8] == longest).all()
    assert (lengths < longest).any()
    for row in (0, 1, 9, 12, 15):
        length = int(lengths[row])
        for at, size in ((length - 1, 2.0), (longest - 1, 2.0 if length == longest else 0.0)):
            other = ours.clone()
            other[row, at, 7] += 2
            parity = proof._parity(model, foreign.head, batch, lambda given, dtype, other=other: other, torch.float32)  # type: ignore[misc]
            assert parity.largest_difference == pytest.approx(size, abs=1e-5)
            expected = {"whole": length == longest, "padded": length < longest}
            if batch.types is not None:
                expected["pairs"] = bool(batch.types[row].any())
            if batch.source_mask is not None:
                expected["padded sources"] = not batch.source_mask[row].all()
            assert parity.cases == pytest.approx({name: size * there for name, there in expected.items()}, abs=1e-5)
            assert ("pairs" in expected, "padded sources" in expected) == (case == "bert", case == "bart")


def test_all_reasons_are_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"n_layer": "2", "activation_function": "mish", "scale_attn_by_inverse_layer_idx": True, "mixture": 3}
    source = folder_of("gpt2", tmp_path / "theirs", **changes)
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, "n_layer is '2'", "activation_function is 'mish'", "scale_attn", "mixture is 3", exit_code=5)
    assert len(done.stderr.splitlines()) == 4
    usual = {"n_layer": 2, "activation_function": "relu", "scale_attn_by_inverse_layer_idx": False, "mixture": None}
    change_config(source, usual | {"n_head": 5})
    for command in (("import", source), ("pretrain", "quickstart", f"model.init_from={source}")):
        done = minitf(*command, "-d", tmp_path / "run")
        refused(done, "config.json: minitf has no such model: model.n_heads: 5 does not", exit_code=5)
    change_config(source, {f"key{n}": n for n in range(100)})
    monkeypatch.setitem(sys.modules, "transformers", None)  # which would prove that they are notes
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, "key19 is 19", "config.json: 80 more keys cannot be read", exit_code=5)
    assert len(done.stderr.splitlines()) == 21


def test_without_transformers_an_import_says_that_nothing_was_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder_of("gpt2", tmp_path / "theirs")
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = minitf("import", source, "-o", tmp_path / "run", "-q", "--json")
    assert done.exit_code == 0, done.stderr
    assert "warning: no proof, since transformers is not installed: minitf alone read the files" in done.stderr
    assert json.loads(done.stdout)["result"] == {"proved": False}
    parity = json.loads((tmp_path / "run" / "parity.json").read_text())
    assert (parity["reader"], parity["missing"]) == ("minitf", "transformers is not installed")
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__="4.0"))
    done = minitf("export", tmp_path / "run", "-o", tmp_path / "out")
    assert "warning: no proof, since transformers 4.0 has no GPT2LMHeadModel" in done.stderr


@pytest.mark.parametrize(
    ("scale", "eps", "fits"), [(1e4, 1e-6, True), (1e4, 1e-3, False), (1e-4, 1e-6, True), (1e-4, 1e-3, False)]
)
def test_the_tolerance_is_relative_to_the_outputs(scale: float, eps: float, fits: bool, tmp_path: Path) -> None:
    """Large logits differ by rounding alone, and of small ones an error is small."""
    source = folder_of("t5 1.1", tmp_path)
    tensors = load_file(source / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["lm_head.weight"] * scale}, source / "model.safetensors")
    foreign = open_foreign(source)
    change_config(source, {"layer_norm_epsilon": eps})
    parity = compared(source, foreign)
    assert (parity.largest_difference > 1e-4) == (scale > 1)  # an absolute limit would be wrong in two of four cases
    assert parity.largest_output == pytest.approx(3.25 * scale, rel=0.1)
    assert parity.holds == fits


@pytest.mark.parametrize(
    "case", [case for case in ("gpt2", "bert", "roberta", "electra", "distilbert", "bart") if case in CASES]
)
def test_in_double_precision_only_rounding_in_double_remains(case: str, tmp_path: Path) -> None:
    source = folder_of(case, tmp_path)
    foreign = open_foreign(source)
    batch = proof.make_batch(foreign.model, foreign.tokenizer.vocabulary)
    _, theirs, _ = proof._transformers(source, foreign.head, {})
    assert theirs is not None
    parity = proof._parity(foreign.model, foreign.head, batch, theirs, torch.float64)
    assert parity.largest_difference < 1e-13
    assert {parameter.dtype for parameter in foreign.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("noisy", [{torch.float32}, {torch.float32, torch.float64}])
def test_rounding_is_told_from_an_error_in_double_precision(
    noisy: set[torch.dtype], tmp_path: Path, monkeypatch: Any
) -> None:
    source, own = folder_of("gpt2", tmp_path / "theirs"), proof.own_outputs
    assert minitf("import", source, "-o", tmp_path / "before").exit_code == 0
    noise = lambda model, head, batch, dtype: own(model, head, batch, dtype) + (0.01 if dtype in noisy else 0)  # noqa: E731
    monkeypatch.setattr(proof, "own_outputs", noise)
    done = minitf("import", source, "-o", tmp_path / "run")
    if len(noisy) == 1:
        assert done.exit_code == 0, done.stderr
        assert done.stderr.rstrip().endswith("in fp64")
        assert json.loads((tmp_path / "run" / "parity.json").read_text())["precision"] == "fp64"
    else:
        refused(done, "the logits differ by up to 0.01", "in fp64", exit_code=5)
        done = minitf("export", tmp_path / "before", "-o", tmp_path / "out")
        refused(done, "the logits differ by up to 0.01", exit_code=5)
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "out").exists()


def test_settings_of_generation_are_not_dropped_without_a_word(tmp_path: Path) -> None:
    source = folder_of("bart", tmp_path, no_repeat_ngram_size=3, num_beams=2, early_stopping=False)
    read = open_foreign(source)
    assert read.notes[1:] == ["read: settings of generation, num_beams 2, no_repeat_ngram 3"]
    assert (read.recipe.generate.num_beams, read.recipe.generate.no_repeat_ngram) == (2, 3)
    given = {"num_beams": 5, "length_penalty": 11, "forced_bos_token_id": 1, "max_length": 20}
    given |= {"suppress_tokens": [1, 2], "early_stopping": "never"}  # of length penalties minitf has at most 10
    (source / "generation_config.json").write_text(json.dumps(given))
    assert open_foreign(source).notes[1:] == [
        "read: settings of generation, num_beams 5, no_repeat_ngram 3",
        "left out: settings of generation, length_penalty 11, suppress_tokens [1, 2]",
    ]
    defaults = {"top_k": 50, "top_p": 1.0, "temperature": 1.0, "do_sample": False}
    defaults |= {"min_length": 0, "max_length": 20, "bad_words_ids": None}
    (source / "generation_config.json").write_text(json.dumps(defaults))
    change_config(source, {"no_repeat_ngram_size": 0, "num_beams": None})
    assert len(open_foreign(source).notes) == 1


@pytest.mark.parametrize(
    ("given", "settings", "notes"),
    [
        ({}, {}, []),
        ({"temperature": 0.6}, {}, ["left out: settings of generation, temperature 0.6"]),  # without do_sample: greedy
        (
            {"do_sample": False, "temperature": 0.6},
            {"temperature": 0.0},
            ["read: settings of generation, temperature 0.0"],
        ),
        (
            {"do_sample": True, "top_k": 7, "top_p": "high", "min_p": 0.1, "num_beams": 3, "max_new_tokens": 9},
            {"temperature": 1.0, "top_k": 7, "min_p": 0.1, "max_new_tokens": 9},
            [
                "read: settings of generation, max_new_tokens 9, temperature 1.0, top_k 7, min_p 0.1",
                "left out: settings of generation, num_beams 3, top_p 'high'",
            ],
        ),
        ({"do_sample": "yes"}, {}, ["left out: settings of generation, do_sample 'yes'"]),
    ],
)
def test_a_decoder_samples_as_its_folder_says(
    given: dict[str, Any], settings: dict[str, Any], notes: list[str], tmp_path: Path
) -> None:
    source = folder_of("gpt2", tmp_path)
    (source / "generation_config.json").write_text(json.dumps(given))
    found = open_foreign(source)
    assert found.recipe.generate == Generate(**settings)
    assert [note for note in found.notes if "generation" in note] == notes


def test_a_special_token_is_found_by_its_name_by_its_id_or_by_its_usual_text(tmp_path: Path) -> None:
    """In this order; from any file that a folder may have."""
    added = [{"id": 3, "content": "<b>", "special": True}, {"id": 4, "content": "[CLS]", "special": True}]
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [*added, {"id": 5, "content": "word", "special": False}]})
    )

    def token(role: str, **ids: int) -> str | None:
        return special_token(tmp_path, role, Config(ids, "config.json"))

    assert token("bos_token", bos_token_id=3) == "<b>"
    assert token("bos_token", bos_token_id=5) is None  # a word
    assert token("bos_token") is None
    assert token("cls_token") == "[CLS]"
    assert token("cls_token", cls_token_id=3) == "<b>"
    for value in ("<named>", {"content": "<named>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": value}))
        assert token("bos_token", bos_token_id=3) == "<named>"
    older = json.dumps({"add_bos_token": True, "bos_token": "<named>"})
    (tmp_path / "tokenizer_config.json").write_text(older)
    assert begin_token(tmp_path, Config({}, "config.json")) is None  # its template would say so
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": null}')
    (tmp_path / "vocab.txt").write_text("\ufeff[CLS]\n[UNK]\na\n")
    assert token("cls_token") == "[CLS]"
    assert token("bos_token") is None
    (tmp_path / "tokenizer_config.json").write_text(older)
    assert begin_token(tmp_path, Config({}, "config.json")) == "<named>"


def test_of_many_faults_the_first_ones_are_listed_and_the_others_counted() -> None:
    config = Config({}, "config.json")
    for n in range(MOST_FAULTS + 1):
        assert len(config.faults) == n
        config.refuse(f"key{n}", "must")
    assert config.faults[-1] == "config.json: 1 more keys cannot be read"


@pytest.mark.parametrize(("n", "ending"), [(53, '", 1]; must'), (54, 'xxx"...; must')])
def test_a_long_value_is_shortened_in_a_message(n: int, ending: str) -> None:
    config = Config({"key": ["x" * n, 1]}, "config.json")
    config.refuse("key", "must")
    assert config.faults[0].endswith(ending)
    assert len(config.faults[0]) == len("config.json: key is ; must") + 60


def test_a_note_of_another_tool_is_left_to_the_proof(tmp_path: Path) -> None:
    """A key that transformers itself names is no note, and neither is any without a proof."""
    many = {f"curated{n}": n for n in range(30)}
    source = folder_of("gpt2", tmp_path / "theirs", curator_notes="from a shop", **many)
    done = minitf("import", source, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"config.json: not read: curator_notes, curated0, .*, curated18, 11 more\n", done.stderr)
    assert "proof: loaded by transformers" in done.stderr
    done = minitf("pretrain", TINY, f"model.init_from={source}", "-d", tmp_path / "trained")
    refused(done, "curator_notes is 'from a shop'; minitf does not read this key", exit_code=5)
    change_config(source, {"sliding_window": 4})
    done = minitf("import", source, "-o", tmp_path / "again")
    refused(done, "sliding_window is 4; minitf does not read this key", exit_code=5)
    assert "curator_notes" not in done.stderr


@pytest.mark.parametrize("words", [ACTIVATIONS, SIDES_WORDS, T5_WORDS])
def test_the_word_that_is_written_for_an_activation_is_read_as_it(words: dict[str, str]) -> None:
    assert {ours: words[their_word(ours, words)] for ours in words.values()} == {ours: ours for ours in words.values()}
    assert their_word("relu_squared", words) == "relu_squared"
