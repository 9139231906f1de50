"""LoRA adapters of PEFT, both ways: what minitf writes PEFT loads, what PEFT saves minitf imports; equal logits."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUIET, minitf, refused
from families import CASES, exported, folder_of, imported, transformers
from safetensors.torch import load_file, save_file

from mini_tf.hf.peft_files import read_adapter
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import open_trained

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import peft

EXACT = 1e-5
IDS = torch.tensor([[9, 30, 17, 5, 11, 40], [12, 12, 7, 33, 21, 8]])


def their_model(case: str, folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers(), CASES[case][0]).from_pretrained(folder)


def our_logits(run: Path, hidden: bool = False) -> torch.Tensor:
    """hidden: the hidden states of a model without a head."""
    model = open_trained(run, device="cpu").model
    with torch.inference_mode():
        states: torch.Tensor = model(Tokens(IDS)).y
        return states if hidden else model.logits(states)


def their_logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        outputs = model.eval()(IDS)
        return outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", ["llama, grouped queries, wide heads, tied", "bert"])
def test_peft_loads_what_minitf_exports(case: str, tmp_path: Path) -> None:
    base, text = folder_of(case, tmp_path / "base"), tmp_path / "text.txt"
    text.write_text("\n\n".join(f"w{5 + n % 40} w{5 + n % 7} w{5 + n % 11} w9" for n in range(60)))
    recipe, objective = ("quickstart", "next_token") if case.startswith("llama") else ("bert-nano", "masked")
    keys = (f"model.init_from={base}", f"data.train={text}", "train.context=16", "train.batch_size=4", "train.steps=3")
    lora = ("adapter={kind: lora, rank: 3, alpha: 5}", "optimizer={kind: adamw, lr: 0.05}")
    done = minitf("pretrain", recipe, *keys, *lora, f"objective.kind={objective}", *QUIET, "-d", tmp_path / "tuned")
    assert done.exit_code == 0, done.stderr
    done = minitf("export", tmp_path / "tuned", "-o", tmp_path / "adapter", "--to", "peft")
    assert done.exit_code == 0, done.stderr
    model = their_model(case, base)
    before = their_logits(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UserWarning)  # PEFT warns of tensors that it misses or does not know
        adapted = peft.PeftModel.from_pretrained(model, tmp_path / "adapter")
    ours = our_logits(tmp_path / "tuned")
    torch.testing.assert_close(their_logits(adapted), ours, rtol=0, atol=EXACT)
    assert (before - ours).abs().max() > 1e-2
    assert imported(tmp_path / "adapter", tmp_path / "again")["largest_difference"] < EXACT
    exported(tmp_path / "tuned", tmp_path / "merged")
    for logits in (our_logits(tmp_path / "again"), their_logits(their_model(case, tmp_path / "merged"))):
        torch.testing.assert_close(logits, ours, rtol=0, atol=EXACT)


def test_an_adapter_of_a_run_is_no_adapter_of_a_folder(tmp_path: Path) -> None:
    imported(folder_of("llama", tmp_path / "base"), tmp_path / "run")
    folder = adapter_folder(tmp_path, base_model_name_or_path=str(tmp_path / "run"))
    refused(minitf("import", folder, "-o", tmp_path / "no"), "its base is a run", "--base names", exit_code=5)


ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "queries and values": ("llama", {"target_modules": ["q_proj", "v_proj"]}),
    "all matrices": ("bert", {"target_modules": "all-linear"}),
    "a model without a head": ("llama without a head", {"target_modules": ["o_proj"]}),
    "one layer": ("llama, biases", {"target_modules": ["down_proj"], "layers_to_transform": [1]}),
    "transposed matrices": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
}


def adapter_of_peft(case: str, base: Path, folder: Path, **settings: Any) -> Any:
    """An adapter with random weights, saved by PEFT; the adapted model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(their_model(case, base), peft.LoraConfig(r=4, lora_alpha=6, **settings))
        torch.manual_seed(0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_peft_saves_is_imported(name: str, tmp_path: Path) -> None:
    case, settings = ADAPTERS[name]
    base = folder_of(case, tmp_path / "base")
    model = adapter_of_peft(case, base, tmp_path / "adapter", **settings)
    assert imported(tmp_path / "adapter", tmp_path / "run")["largest_difference"] < EXACT
    if name == "one layer":
        file = tmp_path / "adapter" / "adapter_model.safetensors"
        save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file)
        other = minitf("import", tmp_path / "adapter", "-o", tmp_path / "run")
        refused(other, "run", exit_code=5)  # another adapter is another run, whose files are not read
        assert "is not the tensor" not in other.stderr
    ours = our_logits(tmp_path / "run", case.endswith("without a head"))
    torch.testing.assert_close(ours, their_logits(model), rtol=0, atol=EXACT)
    with model.disable_adapter():
        assert (their_logits(model) - ours).abs().max() > 1e-2


def adapter_folder(folder: Path, **changes: Any) -> Path:
    """An adapter of one matrix, with all keys that PEFT writes."""
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_{}.weight"
    tensors = {name.format("A"): torch.ones(2, 3), name.format("B"): torch.full((4, 2), 0.5)}
    save_file(tensors, folder / "adapter_model.safetensors")
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["down_proj"]).to_dict()
    config |= {"target_modules": ["down_proj"], "peft_type": "LORA", **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"use_rslora": True},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"rank_pattern": {"q_proj": 2}},
        {"layer_replication": [[0, 2]]},
        {"trainable_token_indices": [1]},
        {"target_parameters": ["w"]},
        {"alora_invocation_tokens": [5]},
        {"init_lora_weights": "pissa"},
        {"init_lora_weights": "loftq"},
        {"bias": "all"},
        {"peft_type": "LOHA"},
        {"alpha_pattern": {"down_proj": 3}},
        {"lora_bias": True},
        {"use_qalora": True},
        {"a_newer_key": 1},
        {"r": 2.5},
    ],
)
def test_a_key_of_an_adapter_that_changes_more_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    [key] = changes
    with pytest.raises(RunFault, match=f"adapter_config.json: {key} is "):
        read_adapter(adapter_folder(tmp_path, **changes))
    if key == "use_dora":
        refused(minitf("import", tmp_path, "-o", tmp_path / "run"), f"{key} is ", exit_code=5)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes", [{}, {"init_lora_weights": "gaussian"}, {"lora_dropout": 0.5}, {"a_newer_switch": False}]
)
def test_keys_without_effect_are_accepted_and_the_scale_is_alpha_by_rank(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    base, deltas = read_adapter(adapter_folder(tmp_path, base_model_name_or_path="../base", **changes))
    assert base == "../base"
    assert [*deltas] == ["model.layers.0.mlp.down_proj.weight"]
    assert [delta.tolist() for delta in deltas.values()] == [[[3.0] * 3] * 4]
    _, transposed = read_adapter(adapter_folder(tmp_path, fan_in_fan_out=True))
    assert [list(delta.shape) for delta in transposed.values()] == [[3, 4]]


def test_an_adapter_may_leave_out_what_has_a_default(tmp_path: Path) -> None:
    folder = adapter_folder(tmp_path)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    base, deltas = read_adapter(folder)
    assert base == ""
    assert [delta.tolist() for delta in deltas.values()] == [[[4.0] * 3] * 4]  # alpha is 8


A, B = (f"base_model.model.model.layers.0.mlp.down_proj.lora_{part}.weight" for part in "AB")


@pytest.mark.parametrize(
    ("tensors", "name"),
    [
        ({A: (2, 3)}, A),
        ({B: (4, 2)}, B),
        ({A: (3, 3), B: (4, 3)}, A),
        ({A: (2, 3), B: (4, 3)}, B),
        ({A: (2, 3, 1), B: (4, 2)}, A),
        ({A.removeprefix("base_model.model."): (2, 3), B.removeprefix("base_model.model."): (4, 2)}, "model.layers.0"),
        ({A: (2, 3), B: (4, 2), "base_model.model.lm_head.weight": (4, 4)}, "base_model.model.lm_head.weight"),
    ],
)
def test_tensors_that_are_no_low_rank_products_are_refused(
    tensors: dict[str, tuple[int, ...]], name: str, tmp_path: Path
) -> None:
    folder = adapter_folder(tmp_path)
    save_file({name: torch.ones(shape) for name, shape in tensors.items()}, folder / "adapter_model.safetensors")
    with pytest.raises(RunFault, match=f"{name}.* is no part of a low-rank product of rank 2"):
        read_adapter(folder)
    save_file({A: torch.ones(2, 3), B: torch.full((4, 2), torch.inf)}, folder / "adapter_model.safetensors")
    with pytest.raises(RunFault, match=r"adapter_model.safetensors.*not finite"):
        read_adapter(folder)
