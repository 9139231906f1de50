"""LoRA adapters in the format of PEFT: adapter_config.json and adapter_model.safetensors.

A matrix W of the base model becomes W + (alpha / r) B A, with A (r, inputs) and B (outputs, r): `nn.weights.lora`.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from mini_tf.hf.families import Config, Family, Head, Layout
from mini_tf.hf.layouts import pairs_of
from mini_tf.hf.model_folder import read_config
from mini_tf.nn.lora import LOW_RANK
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Adapter
from mini_tf.run import tensors
from mini_tf.system.errors import RunFault

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NO_EFFECT = (
    "task_type|auto_mapping|peft_version|revision|inference_mode|lora_dropout|(target|exclude)_modules|layers_(to_transform|pattern)|"
    "megatron_core|runtime_config|qalora_group_size|(eva|loftq)_config"
)
"""Keys that change no output beside those of the tensors that the file has; a regular expression of names."""
_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
MERGED = "without --to peft the adapter is merged into the model that is written"


class LoraDelta(NamedTuple):
    """base: the folder of the base model as the adapter names it. deltas: what is added to its tensors, by name."""

    base: str
    deltas: dict[str, Tensor]


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def read_adapter(folder: Path) -> LoraDelta:
    """The adapter of a folder. RunFault if it is none that is a sum of low-rank products."""
    config = read_config(folder, CONFIG)
    config.only("peft_type", "LORA")
    config.only("bias", "none")
    for key in ("use_dora", "use_rslora", "lora_bias"):
        config.only(key, False)
    for key in ("rank_pattern", "alpha_pattern"):
        config.only(key, why=": all matrices have one rank")
    config.only("modules_to_save")
    unchanged = ", which leave the weights of the base as they are"
    config.only("init_lora_weights", True, False, "gaussian", "orthogonal", "eva", why=unchanged)
    rank, alpha, transposed = config.integer("r"), config.number("lora_alpha", 8), config.flag("fan_in_fan_out", False)
    base = str(config.get("base_model_name_or_path") or "")
    config.refuse_unread(_NO_EFFECT, False, {}, [])
    config.check()
    matrices = tensors.read(folder / WEIGHTS, _expected(config, folder, rank))
    tensors.check_finite(matrices, folder / WEIGHTS)
    deltas = {}
    for name in (name for name in matrices if name.endswith(_A)):
        module = name.removesuffix(_A)
        delta = matrices[module + _B].float() @ matrices[name].float() * (alpha / rank)
        deltas[f"{module.removeprefix(_PREFIX)}.weight"] = delta.T.contiguous() if transposed else delta
    return LoraDelta(base, deltas)


def _expected(config: Config, folder: Path, rank: int) -> dict[str, tensors.TensorSpec]:
    """The header of the file; RunFault unless it is of pairs of matrices of this rank."""
    path = folder / WEIGHTS
    if not path.is_file():
        hint = "adapters in pickle files (.bin) can run code and are never opened"
        raise RunFault(f"{folder} has no {WEIGHTS}", hint=hint, where=[str(folder)])
    header = tensors.read_specs(path)
    for name, spec in header.items():
        other = name.removesuffix(_A) + _B if name.endswith(_A) else name.removesuffix(_B) + _A
        side = 0 if name.endswith(_A) else 1
        whole = name.startswith(_PREFIX) and name.endswith((_A, _B)) and other in header
        if not whole or len(spec.shape) != 2 or spec.shape[side] != rank:
            fault = f"{name[:80]} {str(spec)[:60]} is no part of a low-rank product of rank {rank}"
            raise RunFault.located(str(path), fault)
    return header


def written_adapter(
    model: Model, weights: Mapping[str, Tensor], family: Family, head: Head, settings: Adapter, base: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the config of an adapter, from the weights of an adapted run.

    model: on the meta device, without adapter. RunFault for a matrix that the family stores in another form.
    """
    written: dict[str, Tensor] = {}
    adapted, others = set[str](), set[str]()
    for pair in pairs_of(model, family.names(model.settings, head)):
        prefix = pair.ours.removesuffix(".weight") + LOW_RANK
        n_parts = sum(name.startswith(f"{prefix}A.") for name in weights)
        modules = [_full(name.removesuffix(".weight"), family) for name in pair.theirs]
        (adapted if n_parts else others).update(modules)
        if not n_parts:
            continue
        if type(pair.layout) is not Layout or len(pair.theirs) != n_parts:
            fault = f"{pair.ours} is stored in another form by {family.kind}, which no adapter of its own fits"
            raise RunFault(fault, hint=MERGED)
        for part, module in enumerate(modules):
            written |= {
                f"{_PREFIX}{module}{_A}": weights[f"{prefix}A.{part}"],
                f"{_PREFIX}{module}{_B}": weights[f"{prefix}B.{part}"],
            }
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(_targets(adapted, others)),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "modules_to_save": None,
    }
    return written, config


def _full(module: str, family: Family) -> str:
    return f"{family.PREFIX}{module[1:]}" if module.startswith(".") else module


def _targets(adapted: Set[str], others: Set[str]) -> Set[str]:
    """The last parts of the names of the adapted modules; the whole names where another module ends in one of them."""
    short = {module.rpartition(".")[2] for module in adapted}
    return adapted if short & {module.rpartition(".")[2] for module in others} else short
