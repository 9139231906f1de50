"""Which architecture of llama.cpp computes a model of a family, and what its file holds: keys and tensors.

An encoder goes out without its masked-LM head: its outputs are the mean of its hidden states, as in `minitf embed`, or
the logits of its classifier. Source: llama.cpp, src/models and gguf-py, by which each architecture has one activation
and one kind of rotation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mini_tf.hf.families import NEXT_TOKEN, Head
from mini_tf.hf.family_choice import FamilyModel
from mini_tf.hf.layouts import GgufArchitecture
from mini_tf.system.errors import RunFault

INVERSE_SOFTPLUS_OF_1, SOFTPLUS_0 = 0.5413248546129181, -100.0
"""What xIELU's parameters are the softplus of: log(e - 1), and a number of which it is 0 in fp32."""
XIELU = {"xielu.alpha_p": INVERSE_SOFTPLUS_OF_1, "xielu.alpha_n": SOFTPLUS_0, "xielu.beta": 0.0, "xielu.eps": -1e-6}
"""xIELU(x) = alpha_p x^2 + beta x for x > 0, and alpha_n (e^min(x, eps) - 1 - x) + beta x below: here max(x, 0)^2."""
ROTATIONS = "rope_freqs.weight"
SIZES = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd", "dim"),
    "block_count": ("num_hidden_layers", "n_layer", "n_layers"),
    "feed_forward_length": ("intermediate_size", "n_inner", "hidden_dim"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
}
"""Keys of llama.cpp, and those of config.json that have them."""
MEAN, CLASSES = 1, 4
"""Poolings of llama.cpp."""
CLASSIFIER = ("cls", "cls.output")
"""Its names of the layers of a classifier."""


class GgufModel(NamedTuple):
    """keys: of the architecture, without its name in front; tensors: by llama.cpp's names."""

    architecture: GgufArchitecture
    keys: dict[str, Any]
    tensors: dict[str, Tensor]


def as_gguf(model: FamilyModel, names: Callable[[str, int], Any]) -> GgufModel:
    """A model of a family as one of llama.cpp's; RunFault with the reasons if it has none.

    names: the map of tensor names of an architecture with so many layers.
    """
    config, weights, reasons = model.config, dict(model.weights), []
    if not model.family.GGUF:
        raise RunFault(f"llama.cpp continues texts, and {model.head.architecture} does not")
    same_gate = _gate_is_value(weights)
    for architecture in model.family.GGUF:
        activation = activation_of(config)
        rotation = config.get("rope_parameters", {})
        scaled = rotation.get("rope_type", "default") != "default"
        faults = _other_outputs(architecture, model.head)
        if activation not in architecture.activations:
            faults.insert(0, f"{architecture.word} has the activation {architecture.activations[0]}, not {activation}")
        if not architecture.gate and not same_gate:
            faults.append(f"{architecture.word} has no gate, and gate and value of this model differ")
        if scaled and not architecture.scaled:
            faults.append(f"{architecture.word} has no scaled rotation")
        if not faults:
            if not architecture.causal:
                weights = _encoder_weights(architecture, model)
            return _written(architecture, config, weights, rotation if scaled else {}, names)
        reasons += faults
    raise RunFault(f"llama.cpp has no {model.head.architecture} like this one: {'; '.join(reasons)}")


def activation_of(config: Mapping[str, Any]) -> str:
    """The activation of a config.json, by the word there."""
    return str(_first(config, ("hidden_act", "activation_function", "activation")))


def _first(config: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these keys that there is."""
    return next(config[name] for name in names if name in config)


def _other_outputs(architecture: GgufArchitecture, head: Head) -> list[str]:
    """Why an architecture does not have the outputs of a head, if so."""
    if architecture.causal:
        continues = head.objective == NEXT_TOKEN
        return [] if continues else [f"{architecture.word} continues texts, and {head.architecture} does not"]
    if head.pools:
        return [] if architecture.classes else [f"the classifiers of {architecture.word} have tanh"]
    vectors = head.objective is None or head.masked
    return [] if vectors else [f"{architecture.word} has vectors and classes of texts, not of tokens"]


def _encoder_weights(architecture: GgufArchitecture, model: FamilyModel) -> dict[str, Tensor]:
    """The tensors of the base model and of a classifier, by the names of the base model alone."""
    prefix = "" if model.head.base else model.family.PREFIX
    weights = {
        name.removeprefix(prefix): tensor
        for name, tensor in model.weights.items()
        if model.head.pools or name.startswith(prefix)
    }
    classifier = dict(zip(architecture.classes or (), CLASSIFIER, strict=False)) if model.head.pools else {}

    def renamed(name: str) -> str:
        module, _, part = name.rpartition(".")
        return f"{classifier.get(module, module)}.{part}"

    return {renamed(name): tensor for name, tensor in weights.items()}


def _gate_is_value(weights: Mapping[str, Tensor]) -> bool:
    gates = {name: name.replace("gate_proj", "up_proj") for name in weights if "gate_proj" in name}
    return bool(gates) and all(torch.equal(weights[gate], weights[up]) for gate, up in gates.items())


def _written(
    architecture: GgufArchitecture,
    config: Mapping[str, Any],
    weights: dict[str, Tensor],
    scaled: Mapping[str, Any],
    names: Callable[[str, int], Any],
) -> GgufModel:
    keys: dict[str, Any] = {ours: _first(config, theirs) for ours, theirs in SIZES.items()}
    heads, n_layers = keys["attention.head_count"], keys["block_count"]
    if not architecture.causal:
        classes = f"{CLASSIFIER[1]}.weight" in weights
        keys |= {"attention.causal": False, "pooling_type": CLASSES if classes else MEAN}
        if classes:
            keys["classifier.output_labels"] = [*config["id2label"].values()]
    if architecture.interleaved is None:
        eps = config.get("layer_norm_epsilon", config.get("layer_norm_eps", 1e-12))
        keys["attention.layer_norm_epsilon"] = float(eps)
    else:
        keys |= {
            "attention.head_count_kv": config["num_key_value_heads"],
            "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
            **{f"attention.{part}_length": config["head_dim"] for part in ("key", "value")},
            "rope.dimension_count": config["head_dim"],
            "rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
            "vocab_size": config["vocab_size"],
        }
    if not architecture.gate:
        weights = {name: tensor for name, tensor in weights.items() if "gate_proj" not in name}
    if architecture.xielu:
        keys |= {name: [value] * n_layers for name, value in XIELU.items()}
    tensor_names = names(architecture.word, n_layers)
    tensors = {}
    for name, tensor in weights.items():
        theirs = tensor_names.get_name(name, try_suffixes=(".weight", ".bias"))
        theirs = name if name.rpartition(".")[0] in CLASSIFIER else theirs
        if theirs is None:
            raise RunFault(f"llama.cpp's {architecture.word} has no tensor for {name}")
        tensors[theirs] = _laid_out(architecture, name, tensor, heads, keys)
    if architecture.causal:
        tensors.setdefault("output.weight", tensors["token_embd.weight"])
    if scaled:
        tensors[ROTATIONS] = frequency_factors(scaled, config["head_dim"])
    return GgufModel(architecture, keys, tensors)


def frequency_factors(rotation: Mapping[str, Any], width: int) -> Tensor:
    """(width/2,): what each frequency of a rotation is divided by. rotation: the keys of config.json."""
    pair, context = torch.arange(0, width, 2, dtype=torch.float64), rotation.get("original_max_position_embeddings")
    if rotation["rope_type"] == "linear":
        return torch.full(pair.shape, float(rotation["factor"]))
    rotations = context * rotation["rope_theta"] ** (-pair / width) / (2 * torch.pi)
    low, high = rotation["low_freq_factor"], rotation["high_freq_factor"]
    kept: Tensor = ((rotations - low) / (high - low)).clamp(0, 1)
    factors: Tensor = 1 / (kept + (1 - kept) / rotation["factor"])
    return factors.float()


def _laid_out(architecture: GgufArchitecture, name: str, tensor: Tensor, heads: int, keys: Mapping[str, Any]) -> Tensor:
    if architecture.interleaved is None:
        return tensor.t().contiguous() if ".c_" in name and tensor.dim() == 2 else tensor
    for part, n in (("q_proj", heads), ("k_proj", keys["attention.head_count_kv"])):
        if part in name and architecture.interleaved:  # dimension j of a head beside j + d/2
            halves: Tensor = tensor.unflatten(0, (n, 2, -1))
            return halves.transpose(1, 2).flatten(0, 2).contiguous()
    return tensor
