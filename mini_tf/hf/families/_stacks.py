"""Tables and settings that several families share."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mini_tf.hf.families import Config, Head, Layout
from mini_tf.recipe.kinds import Kind

Item = TypeVar("Item")

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Their words for activations without a gate, and ours."""


RAW = {"calibrate": False, "logit_adjustment": None, "wide": None}
"""Settings of classifiers: logits as they are, of the model alone."""
ENDS = {"text_end": "text_end", "last": "last"}
"""`Family.POOLS` of decoders. transformers takes the last token that is not padding; here a row ends with a separator,
which `last` takes, and an exported tokenizer writes it.
"""


def decoder_heads(name: str, causal: str) -> tuple[Head, ...]:
    """The heads of a decoder: of next tokens, of classes of whole texts by their last token, and none."""
    classes = {**RAW, "dense": None, "head_bias": False}
    return (
        Head(f"{name}{causal}", {"kind": "next_token"}),
        Head(f"{name}ForSequenceClassification", {"kind": "classify"}, needs=classes, pools=tuple(ENDS)),
        Head(f"{name}Model", None, True, "last_hidden_state"),
    )


def output_layer(head: Head, theirs: str) -> Layout:
    """The name of the output layer, which is `theirs` over the vocabulary."""
    return Layout("score" if head.pools else theirs)


def their_word(ours: str, meanings: Mapping[str, str]) -> str:
    """Their word for one of ours; ours, which reading back refuses, if they have none."""
    return next((theirs for theirs, own in meanings.items() if own == ours), ours)


def within(prefix: str, table: Mapping[str, str | Sequence[str]], theirs: str) -> dict[str, Layout]:
    """The names of the modules of each layer of a stack: {"own.norm": "ln_1"} of the layers "stack" and ".h"."""
    names = {}
    for ours, given in table.items():
        parts = (given,) if isinstance(given, str) else given
        names[f"{prefix}.layers.{{i}}.{ours}"] = Layout(*(f"{theirs}.{{i}}.{part}" for part in parts))
    return names


ROPE = {"default": "default", "linear": "linear", "llama3": "llama3"}
"""Kinds of scaled rotations."""


def rotary_section(config: Config) -> Config:
    """The keys of the rotation: `rope_parameters`, which is `rope_scaling` in older files."""
    if (
        config.has("rope_parameters")
        and config.has("rope_scaling")
        and config.get("rope_parameters") != config.get("rope_scaling")
    ):
        config.refuse("rope_scaling", "it differs from rope_parameters; remove the one that does not apply")
    rope = config.section("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    rope.rename({"type": "rope_type"})
    return rope


def rotary_settings(config: Config, base_key: str) -> dict[str, Any]:
    """The settings of rotary positions: base, and how it is scaled. Older files have the base in the key `base_key`."""
    rope = rotary_section(config)
    kind = rope.word("rope_type", ROPE, "default")
    settings: dict[str, Any] = {"kind": "rotary", "base": rope.number("rope_theta", config.number(base_key, 10000.0))}
    if kind != "default":
        settings["factor"] = rope.number("factor")
    if kind == "llama3":
        context = rope.integer("original_max_position_embeddings", config.integer("max_position_embeddings"))
        bands = {"low": rope.number("low_freq_factor"), "high": rope.number("high_freq_factor")}
        settings["long_wavelengths"] = {"context": context, **bands}
    return settings


def rotary_config(positions: Kind) -> dict[str, Any]:
    """The inverse of `rotary_settings`: the key rope_parameters."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": value_of(positions, "base", 10000.0)}
    factor, long = value_of(positions, "factor", 1.0), value_of(positions, "long_wavelengths", None)
    if long is not None:
        rope |= {"rope_type": "llama3", "factor": factor, "original_max_position_embeddings": long["context"]}
        rope |= {"low_freq_factor": long["low"], "high_freq_factor": long["high"]}
    elif factor != 1:
        rope |= {"rope_type": "linear", "factor": factor}
    return rope


def shortest_period(layers: Sequence[Item]) -> list[Item]:
    """The fewest first items that, repeated, are all of them."""
    lengths = range(1, len(layers) + 1)
    fitting = (n for n in lengths if all(one == layers[i % n] for i, one in enumerate(layers)))
    return list(layers[: next(fitting, 0)])


def value_of(kind: Kind, key: str, default: Any) -> Any:
    """A setting of a kind; the default if it has no such one, which reading back what was written finds out."""
    return kind.model_dump().get(key, default)
