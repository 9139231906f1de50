"""What the families of one architecture share: decoders, encoders, encoder-decoders, and rotary positions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from mini_tf.hf.families import NEXT_TOKEN, Config, ConfigKey, Facts, Family, Head, Layout, value_of
from mini_tf.hf.layouts import Layer, Names, Twice, as_row, shifted, within
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
GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu")
"""Those that llama.cpp computes as GELU, each by tanh."""
WORDS = ACTIVATIONS | {"swish": "silu", "silu": "silu"}
"""Those of encoder-decoders."""
RAW = {"calibrate": False, "logit_adjustment": None, "wide": None}
"""Settings of classifiers: logits as they are, of the model alone."""
POOLER = {r"\.?pooler\..*": "the pooler, which no output of this model uses"}
"""`Family.DROPPED` of encoders."""
UNUSED_HEAD = "the masked-LM head, which this architecture does not use"
IDS = r"\.?embeddings\.(position|token_type)_ids"
"""`Family.COMPUTED` of encoders."""


class DecoderFamily(Family):
    """A decoder, whose classifiers take the last token of a text."""

    MODEL = "decoder"
    # transformers takes the last token that is not padding; here a row ends with a separator, which `last` takes, and
    # an exported tokenizer writes it.
    POOLS = {"text_end": "text_end", "last": "last"}
    OUTPUT: ClassVar[str]
    """The name of the output layer over the vocabulary."""

    def names(self, model: Any, head: Head) -> Names:
        return {**super().names(model, head), "head.linear": Layout("score" if head.pools else self.OUTPUT)}


def decoder_heads(name: str, causal: str) -> tuple[Head, ...]:
    """The heads of a decoder: of next tokens, of classes or numbers of texts by their last token, and none."""
    texts, pools, needs = f"{name}ForSequenceClassification", tuple(DecoderFamily.POOLS), {"dense": None}
    return (
        Head(f"{name}{causal}", NEXT_TOKEN),
        Head(texts, {"kind": "classify"}, needs={**RAW, **needs, "head_bias": False}, pools=pools),
        Head(texts, {"kind": "regress"}, needs={"wide": None, **needs, "head_bias": False}, pools=pools, numbers=True),
        Head(f"{name}Model", None, True, "last_hidden_state"),
    )


def encoder_keys(
    width: str = "hidden_size",
    layers: str = "num_hidden_layers",
    heads: str = "num_attention_heads",
    inner: str = "intermediate_size",
    activation: str = "hidden_act",
    eps: str | None = "layer_norm_eps",
) -> tuple[ConfigKey, ...]:
    """`Family.KEYS` of an encoder, by the names of its keys. eps: None if it has no such key."""
    sizes = {width: "d_model", layers: "n_layers", heads: "n_heads", inner: "d_ff"}
    return (
        *(ConfigKey(theirs, ours) for theirs, ours in sizes.items()),
        ConfigKey(activation, "activation", "gelu", ACTIVATIONS),
        *(() if eps is None else (ConfigKey(eps, "norm_eps", 1e-12),)),
        ConfigKey("tie_word_embeddings", "tied", True),
    )


class EncoderFamily(Family):
    """A post-norm encoder with learned positions, as BERT; what another one declares is what differs."""

    MODEL = "encoder"
    BEGIN = "cls_token"
    KEYS = encoder_keys()
    FIXED = {"norm": "layer", "norm_place": "post", "bias": True, "embed_norm": True}
    TYPES: ClassVar[bool] = True
    """Whether it has token types."""
    NAMES = {
        "embedding.tokens": ".embeddings.word_embeddings",
        "embedding.position.table": ".embeddings.position_embeddings",
        "embedding.types": ".embeddings.token_type_embeddings",
        "embedding.norm": ".embeddings.LayerNorm",
    }
    LAYER = {
        "self_attn.part.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "self_attn.part.out": "attention.output.dense",
        "self_attn.norm": "attention.output.LayerNorm",
        "feed_forward.part.up": "intermediate.dense",
        "feed_forward.part.down": "output.dense",
        "feed_forward.norm": "output.LayerNorm",
    }
    LAYERS = ".encoder.layer"
    PREDICTIONS: ClassVar[tuple[str, str, str]]
    """The names of the masked-LM head: its dense layer, the norm behind it, the output layer."""
    CLASSES: ClassVar[tuple[str, str]] = ("classifier.dense", "classifier.out_proj")
    """Those of the head of texts: its dense layer and its output layer; a head of tokens has "classifier" alone."""
    BIAS: ClassVar[str | None] = None
    """That of the bias of the masked-LM head, which untied files have under two names."""

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        settings = super().settings(config, head) | {"head": "bert" if head.masked else "linear"}
        settings["tied"] = settings["tied"] or not head.masked
        return settings | {"n_types": config.integer("type_vocab_size", 2) if self.TYPES else 0}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return super().config(model, facts) | ({"type_vocab_size": model.n_types} if self.TYPES else {})

    def names(self, model: Any, head: Head) -> Names:
        if head.masked:
            pairs = zip(("head.transform.dense", "head.transform.norm", "head.linear"), self.PREDICTIONS, strict=True)
        else:
            dense, output = self.CLASSES
            pairs = zip(("head.dense", "head.linear"), (dense, output if head.pools else "classifier"), strict=True)
        names = {**super().names(model, head), **{ours: Layout(theirs) for ours, theirs in pairs}}
        if head.masked and self.BIAS is not None:
            output_bias = f"{self.PREDICTIONS[-1]}.bias"
            names["head.linear.bias"] = Layout(self.BIAS) if model.tied else Twice(output_bias, self.BIAS)
        return names


def encoder_heads(
    name: str, dense: str, *others: Head, pools: tuple[str, ...] = ("first",), token_dense: str | None = None
) -> tuple[Head, ...]:
    """Heads of masked tokens, `others`, of classes of tokens, of classes or numbers of texts, and none.

    dense, token_dense: the activations of the dense layers of the heads of texts and of tokens.
    """
    texts, needs = f"{name}ForSequenceClassification", {"dense": dense, "head_bias": True}
    return (
        Head(f"{name}ForMaskedLM", {"kind": "masked"}),
        *others,
        Head(f"{name}ForTokenClassification", {"kind": "tag"}, needs={**RAW, "dense": token_dense, "head_bias": True}),
        Head(texts, {"kind": "classify"}, needs={**RAW, **needs}, pools=pools),
        Head(texts, {"kind": "regress"}, needs={"wide": None, **needs}, pools=pools, numbers=True),
        Head(f"{name}Model", None, True, "last_hidden_state"),
    )


PAD = 1
"""RoBERTa's id of the padding token; the position of the first token is the row after it."""


class RobertaLayers(EncoderFamily):
    """What RoBERTa and XLM-RoBERTa share: BERT whose positions count from the row after that of padding."""

    PREFIX = "roberta."
    ONLY = {"position_embedding_type": "absolute"}
    PREDICTIONS = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder")
    BIAS = "lm_head.bias"
    TIED = {"lm_head.decoder.weight": ".embeddings.word_embeddings.weight", "lm_head.decoder.bias": BIAS}
    COMPUTED = IDS
    DROPPED = {**POOLER, r"lm_head\..*": UNUSED_HEAD}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        if config.get("pad_token_id") != PAD:
            config.refuse("pad_token_id", f"positions are counted from the id of padding, which must be {PAD}")
        if head.masked:
            config.only("hidden_act", "gelu", why=", the activation of its masked-LM head")
        return super().settings(config, head)

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        written = super().config(model, facts)
        length = written["max_position_embeddings"] + PAD + 1
        return written | {"max_position_embeddings": length, "pad_token_id": facts.vocabulary.pad}

    def names(self, model: Any, head: Head) -> Names:
        table = shifted(".embeddings.position_embeddings", PAD + 1)
        return {**super().names(model, head), "embedding.position.table": table}

    def context(self, config: Config) -> int:
        return config.integer("max_position_embeddings", least=PAD + 2) - PAD - 1


HAS_BIAS = "minitf_final_logits_bias"
"""A key of config.json of our own: whether the output layer has a bias. Without it, it has one."""


class EncoderDecoderFamily(Family):
    """A post-norm encoder and decoder with cross-attention, as BART and Marian."""

    MODEL = "encoder_decoder"
    PREFIX = "model."
    CONTEXT = ("max_position_embeddings", 1024)
    KEYS = (
        ConfigKey("d_model", "d_model"),
        *(
            ConfigKey(f"{side}_{theirs}", path + ours)
            for side, path in (("encoder", "encoder."), ("decoder", ""))
            for theirs, ours in (("layers", "n_layers"), ("attention_heads", "n_heads"), ("ffn_dim", "d_ff"))
        ),
        ConfigKey("activation_function", "activation", "gelu", WORDS),
        ConfigKey("scale_embedding", "embed_scale", False),
        ConfigKey("tie_word_embeddings", "tied", True),
        ConfigKey(HAS_BIAS, "output_bias", True),
    )
    FIXED: ClassVar[Mapping[str, Any]] = {"norm": "layer", "norm_place": "post", "bias": True}
    ONLY: ClassVar[Mapping[str, Any]] = {
        "normalize_before": False,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "do_blenderbot_90_layernorm": False,
    }
    NO_EFFECT = "extra_pos_embeddings|force_bos_token_to_be_generated|save_step|replacing_rate|student_.*_layers"
    KEY_ALIASES = {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads"}
    KEY_ALIASES |= {"num_hidden_layers": "encoder_layers"}
    ZERO = ("final_logits_bias",)
    NAMES = {
        "source_embedding.tokens": ".encoder.embed_tokens",
        "embedding.norm": ".decoder.layernorm_embedding",
        "source_embedding.norm": ".encoder.layernorm_embedding",
        "head.linear.weight": "lm_head.weight",
    }
    LAYER = {
        "self_attn.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.part.out": "self_attn.out_proj",
        "self_attn.norm": "self_attn_layer_norm",
        "feed_forward.part.up": "fc1",
        "feed_forward.part.down": "fc2",
        "feed_forward.norm": "final_layer_norm",
    }
    CROSS: ClassVar[Layer] = {
        "cross_attn.part.q": "encoder_attn.q_proj",
        "cross_attn.part.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        "cross_attn.part.out": "encoder_attn.out_proj",
        "cross_attn.norm": "encoder_attn_layer_norm",
    }
    LAYERS = ".decoder.layers"

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        start = {"decoder_start_token_id": facts.vocabulary.begin_id, "forced_eos_token_id": None}
        return super().config(model, facts) | start | {"is_encoder_decoder": True}

    def names(self, model: Any, head: Head) -> Names:
        return {
            **super().names(model, head),
            **within("stack", self.CROSS, self.LAYERS),
            **within("encoder", self.LAYER, ".encoder.layers"),
            "embedding.tokens": Layout(".shared" if model.shared_embeddings else ".decoder.embed_tokens"),
            "head.linear.bias": as_row("final_logits_bias"),
        }


ROPE = {"default": "default", "linear": "linear", "llama3": "llama3"}
"""Kinds of scaled rotations."""


def rotary_section(config: Config) -> Config:
    """The keys of the rotation: `rope_parameters`, which is `rope_scaling` in older files."""
    newer, older = config.get("rope_parameters"), config.get("rope_scaling")
    if None not in (newer, older) and newer != older:
        config.refuse("rope_scaling", "it differs from rope_parameters; remove the one that does not apply")
    rope = config.section("rope_scaling" if newer is None else "rope_parameters")
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
    fitting = (n for n in lengths if all(layer == layers[i % n] for i, layer in enumerate(layers)))
    return list(layers[: next(fitting, 0)])
