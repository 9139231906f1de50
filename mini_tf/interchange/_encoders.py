"""What BERT and the families after it share: settings, names of the layers, heads of tasks."""

from collections.abc import Mapping
from typing import Any

from mini_tf.interchange import Config, Facts, Head, Layout, Names
from mini_tf.interchange._stacks import ACTIVATIONS, their_word, within

LAYER = {
    "own.part.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "own.part.out": "attention.output.dense",
    "own.norm": "attention.output.LayerNorm",
    "feed_forward.part.up": "intermediate.dense",
    "feed_forward.part.down": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}


def task_heads(name: str) -> tuple[Head, ...]:
    """The heads of a classifier of tokens."""
    return (Head(f"{name}ForTokenClassification", {"kind": "tag"}),)


def encoder_settings(config: Config, head: Head) -> dict[str, Any]:
    """The recipe's section `model` of a post-norm encoder with learned positions, without token types."""
    masked = head.objective is not None and head.objective["kind"] == "masked"
    return {
        "d_model": config.integer("hidden_size"),
        "n_layers": config.integer("num_hidden_layers"),
        "n_heads": config.integer("num_attention_heads"),
        "d_ff": config.integer("intermediate_size"),
        "activation": config.word("hidden_act", ACTIVATIONS, "gelu"),
        "norm": "layer",
        "norm_place": "post",
        "norm_eps": config.number("layer_norm_eps", 1e-12),
        "bias": True,
        "head": "bert" if masked else "linear",
        "tied": not masked or config.flag("tie_word_embeddings", True),
        "embed_norm": True,
        "positions": {"kind": "learned", "length": config.integer("max_position_embeddings")},
    }


def encoder_config(model: Any, facts: Facts) -> dict[str, Any]:
    """The keys of config.json for `encoder_settings`."""
    return {
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": model.n_heads,
        "intermediate_size": model.hidden_dim,
        "hidden_act": their_word(model.activation, ACTIVATIONS),
        "layer_norm_eps": model.norm_eps,
        "tie_word_embeddings": model.tied,
        "max_position_embeddings": model.positions.max_positions(facts.context) or facts.context,
        "vocab_size": facts.vocabulary.size,
    }


def encoder_names(predictions: Mapping[str, str], head: Head) -> dict[str, Layout]:
    """The names of an encoder's tensors; predictions: those of its masked-LM head."""
    masked = head.objective is not None and head.objective["kind"] == "masked"
    outputs = {ours: Layout(theirs) for ours, theirs in predictions.items()} if masked else {"head.linear": Layout("classifier")}
    return {
        "embedding.tokens": Layout(".embeddings.word_embeddings"),
        "embedding.position.table": Layout(".embeddings.position_embeddings"),
        "embedding.types": Layout(".embeddings.token_type_embeddings"),
        "embedding.norm": Layout(".embeddings.LayerNorm"),
        **within("stack", LAYER, ".encoder.layer"),
        **outputs,
    }
