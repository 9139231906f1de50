"""What BERT and the families after it share: settings, names of the layers, heads of tasks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mini_tf.hf.families import Config, Facts, Head, Layout
from mini_tf.hf.families._stacks import ACTIVATIONS, RAW, their_word, within

LAYER = {
    "own.part.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "own.part.out": "attention.output.dense",
    "own.norm": "attention.output.LayerNorm",
    "feed_forward.part.up": "intermediate.dense",
    "feed_forward.part.down": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}


def task_heads(name: str, dense: str) -> tuple[Head, ...]:
    """The heads of classifiers of tokens, and of texts by their first token, with a dense layer of this activation."""
    texts, first = f"{name}ForSequenceClassification", ("first",)
    return (
        Head(f"{name}ForTokenClassification", {"kind": "tag"}, needs={**RAW, "dense": None, "head_bias": True}),
        Head(texts, {"kind": "classify"}, needs={**RAW, "dense": dense, "head_bias": True}, pools=first),
        Head(
            texts,
            {"kind": "regress"},
            needs={"wide": None, "dense": dense, "head_bias": True},
            pools=first,
            numbers=True,
        ),
    )


class EncoderKeys(NamedTuple):
    """The names of the settings in config.json."""

    width: str = "hidden_size"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    inner: str = "intermediate_size"
    activation: str = "hidden_act"
    eps: str | None = "layer_norm_eps"


BERT = EncoderKeys()


def is_masked(head: Head) -> bool:
    """Whether it is a masked-LM head."""
    return head.objective is not None and bool(head.objective["kind"] == "masked")


def encoder_settings(config: Config, head: Head, keys: EncoderKeys = BERT) -> dict[str, Any]:
    """The recipe's section `model` of a post-norm encoder with learned positions, without token types."""
    masked, tied = is_masked(head), config.flag("tie_word_embeddings", True)
    return {
        "d_model": config.integer(keys.width),
        "n_layers": config.integer(keys.layers),
        "n_heads": config.integer(keys.heads),
        "d_ff": config.integer(keys.inner),
        "activation": config.word(keys.activation, ACTIVATIONS, "gelu"),
        "norm": "layer",
        "norm_place": "post",
        "norm_eps": config.number(keys.eps or "", 1e-12),
        "bias": True,
        "head": "bert" if masked else "linear",
        "tied": tied or not masked,
        "embed_norm": True,
        "positions": {"kind": "learned", "length": config.integer("max_position_embeddings")},
    }


def encoder_config(model: Any, facts: Facts, keys: EncoderKeys = BERT) -> dict[str, Any]:
    """The keys of config.json for `encoder_settings`."""
    return {
        keys.width: model.d_model,
        keys.layers: model.n_layers,
        keys.heads: model.n_heads,
        keys.inner: model.hidden_dim,
        keys.activation: their_word(model.activation, ACTIVATIONS),
        **({} if keys.eps is None else {keys.eps: model.norm_eps}),
        "tie_word_embeddings": model.tied,
        "max_position_embeddings": model.positions.max_positions(facts.context) or facts.context,
        "vocab_size": facts.vocabulary.size,
    }


def head_names(predictions: Mapping[str, str], head: Head, dense: str, out: str) -> dict[str, Layout]:
    """The names of a head: of a masked LM `predictions`, of a classifier of texts `dense` and `out`."""
    if is_masked(head):
        return {ours: Layout(theirs) for ours, theirs in predictions.items()}
    return {"head.dense": Layout(dense), "head.linear": Layout(out if head.pools else "classifier")}


def encoder_names(predictions: Mapping[str, str], head: Head, dense: str, out: str = "classifier") -> dict[str, Layout]:
    """The names of an encoder's tensors; the others as in `head_names`."""
    return {
        "embedding.tokens": Layout(".embeddings.word_embeddings"),
        "embedding.position.table": Layout(".embeddings.position_embeddings"),
        "embedding.types": Layout(".embeddings.token_type_embeddings"),
        "embedding.norm": Layout(".embeddings.LayerNorm"),
        **within("stack", LAYER, ".encoder.layer"),
        **head_names(predictions, head, dense, out),
    }
