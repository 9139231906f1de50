"""The families of Hugging Face models that are read and written; each other file is one, named as its model_type.

A family declares its keys of config.json, the settings that all its models have, and the names of its tensors, each
read both ways. What the settings of a family cannot say is found by writing them and reading them back, so a family
refuses by itself what it does not have.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from pydantic import ValidationError

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.tokenizer_files import find_two
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.hf.config_json import NO_EFFECT, Config, no_such_model
from mini_tf.hf.layouts import GgufArchitecture, Layer, Layout, Names, within
from mini_tf.hf.tokenizer_config import chat_separator, end_ids, forced_bos, pad_token, special_token
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import Kind, settings_of

NEXT_TOKEN = {"kind": "next_token"}
"""The objective of a head that continues texts."""
GATED = {"relu2": "reglu"}
"""Activations, and those with a gate that are the same if gate and value are equal: relu(x) x = relu(x)^2."""
__all__ = ["Config", "ConfigKey", "Facts", "Family", "Head", "Layout", "Names", "their_word", "value_of"]


class Head(NamedTuple):
    """An architecture of a family, such as LlamaForCausalLM.

    objective: that of a recipe with this output; None: hidden states alone (a model without a head). base: the names of
    its tensors have no prefix. data: a built-in corpus of the kind that the objective reads; None: text. output: the
    attribute of transformers' output that holds the logits or hidden states. needs: settings that the objective of a
    run must have, such as dense: tanh. pools: of a head of whole texts, the values of its objective's pool. numbers:
    its outputs are numbers, not classes.
    """

    architecture: str
    objective: Mapping[str, Any] | None
    base: bool = False
    output: str = "logits"
    data: str | None = None
    needs: Mapping[str, Any] = MappingProxyType({})
    pools: tuple[str, ...] = ()
    numbers: bool = False

    @property
    def over_tokens(self) -> bool:
        """Whether its outputs are over the vocabulary."""
        settings: Any = None if self.objective is None else settings_of("objectives", self.objective["kind"])
        return settings is not None and "tokens" in settings.PREDICTS

    @property
    def masked(self) -> bool:
        """Whether it is a masked-LM head."""
        return self.objective is not None and bool(self.objective["kind"] == "masked")

    def fits(self, objective: ObjectiveSettings) -> bool:
        """Whether a model that was trained with `objective` has this head."""
        if self.objective is None:
            return "tokens" in objective.PREDICTS or not objective.HEAD
        return self.over_tokens if "tokens" in objective.PREDICTS else objective.kind == self.objective["kind"]

    def with_pool_of(self, objective: ObjectiveSettings) -> "Head":
        """This head with the pooling of an objective alone."""
        return self._replace(pools=(objective.model_dump()["pool"],)) if self.pools else self


class Facts(NamedTuple):
    """What config.json needs beside the settings of the model. labels: of a task; context: in tokens."""

    vocabulary: Vocabulary
    context: int
    labels: Labels | None = None


def their_word(ours: str, meanings: Mapping[str, str]) -> str:
    """Their word for one of ours or an equivalent one; ours, which reading back refuses, if they have none."""
    words = {word: theirs for theirs, word in reversed([*meanings.items()])}
    return words.get(ours) or words.get(GATED.get(ours, ""), ours)


def value_of(kind: Kind, key: str, default: Any) -> Any:
    """A setting of a kind; the default if it has no such one, which reading back what was written finds out."""
    return kind.model_dump().get(key, default)


class ConfigKey(NamedTuple):
    """A key of config.json that is a setting of minitf, read and written alike.

    ours: "encoder.d_ff" is a setting of the other stack; "" is none: the key has one value. default: of an absent key,
    or how it follows from others; None: the key is required. words: their words for ours; without them the value has
    the type of the default, else it is a whole number.
    """

    theirs: str
    ours: str
    default: Any | Callable[[Config], Any] = None
    words: Mapping[str, str] | None = None

    def read(self, config: Config) -> Any:
        """The setting; `config` collects what it cannot be."""
        default = self.default(config) if callable(self.default) else self.default
        if self.words is not None:
            return config.word(self.theirs, self.words, default)
        if isinstance(default, bool):
            return config.flag(self.theirs, default)
        read = config.number if isinstance(default, float) else config.integer
        return read(self.theirs, default)

    def write(self, model: Any) -> Any:
        if not self.ours:
            return self.default
        side, _, name = self.ours.rpartition(".")
        computed = {"d_ff": "hidden_dim", "d_k": "head_dim"}.get(name, name)
        value = getattr(model.source_stack if side else model, computed)
        return value if self.words is None else their_word(value, self.words)


class Family(Kind):
    """A family of Hugging Face models.

    Tables of names: those of the base model begin with a dot, which stands for PREFIX or nothing.
    """

    PACKAGE = "hf.families"

    MODEL_TYPE: ClassVar[str] = ""
    """Its model_type, if that is not its name here."""
    MODEL: ClassVar[str]
    """The architecture in a recipe: `model.kind`."""
    PREFIX: ClassVar[str] = ""
    """What the names of the base model begin with in a model with a head."""
    HEADS: ClassVar[tuple[Head, ...]]
    """The architectures, in the order in which a run is tried."""
    KEYS: ClassVar[tuple[ConfigKey, ...]] = ()
    """The keys of config.json that are settings, in the order of an exported file."""
    FIXED: ClassVar[Mapping[str, Any]] = {}
    """Settings that all its models have."""
    ONLY: ClassVar[Mapping[str, Any]] = {}
    """Keys that must be absent or have this value."""
    CONTEXT: ClassVar[tuple[str, int | None]] = ("max_position_embeddings", None)
    """The key with the longest text in tokens, and its default."""
    NAMES: ClassVar[Mapping[str, str]] = {}
    """The names of modules in the files, by our names."""
    LAYER: ClassVar[Layer] = {}
    """The names of the modules of a layer, after LAYERS and its number."""
    LAYERS: ClassVar[str] = ""
    TIED: ClassVar[Mapping[str, str]] = {}
    """Second names that files may have for a tensor, by name, each with the first one; of which one may be missing."""
    ZERO: ClassVar[tuple[str, ...]] = ()
    """Tensors that are 0 where the files lack them."""
    ALWAYS_TIED: ClassVar[bool] = False
    """Whether the output layer is the embedding if the files lack it, whatever config.json says."""
    COMPUTED: ClassVar[str] = r"(?!)"
    """Tensors of older files that are computed from the settings; a regular expression of names."""
    DROPPED: ClassVar[Mapping[str, str]] = {}
    """What is left out, with a note: regular expressions of names, and what they are."""
    SEPARATOR: ClassVar[str | None] = None
    """The special token between documents, if it is not the one that ends a text: bos_token."""
    BEGIN: ClassVar[str | None] = None
    """The special token before a text or a target, if it is not that between documents: cls_token, pad_token."""
    POOL: ClassVar[str] = "minitf_pool"
    """The key of config.json with the pooling of a head that has several."""
    POOLS: ClassVar[Mapping[str, str]] = {}
    """Our pooling by their word; the first is that of a config.json without the key."""
    NO_EFFECT: ClassVar[str] = r"(?!)"
    """Keys of config.json that change no output, beside those of every family; a regular expression of names."""
    GGUF: ClassVar[tuple[GgufArchitecture, ...]] = ()
    """Architectures of llama.cpp that compute its models, in the order in which they are tried."""
    KEY_ALIASES: ClassVar[Mapping[str, str]] = {}
    """Second names of keys, each with the first one."""

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        """The recipe's section `model`, without its kind; `config` collects what minitf does not have."""
        for name, value in self.ONLY.items():
            config.only(name, value)
        settings: dict[str, Any] = {}
        for key in self.KEYS:
            if not key.ours:
                config.only(key.theirs, key.default)
                continue
            side, _, name = key.ours.rpartition(".")
            (settings.setdefault(side, {}) if side else settings)[name] = key.read(config)
        tied = settings["tied"] or head.objective is None  # no output layer: the embedding takes its place
        return {**settings, **self.FIXED, "tied": tied, "positions": self.positions(config)}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        """The keys of config.json for a model. What it cannot say is found by reading it back with `settings`."""
        length = model.positions.max_positions(facts.context) or facts.context
        written = self.written(model) | {self.CONTEXT[0]: length} | self.positions_config(model)
        return written | {"vocab_size": facts.vocabulary.size}

    def written(self, model: Any) -> dict[str, Any]:
        return {key.theirs: key.write(model) for key in self.KEYS}

    def positions(self, config: Config) -> dict[str, Any]:
        """The setting `positions`."""
        return {"kind": "learned", "length": self.context(config)}

    def positions_config(self, model: Any) -> dict[str, Any]:
        """The keys of config.json for `positions`, beside the context."""
        return {}

    def names(self, model: Any, head: Head) -> Names:
        """Where each tensor of the model stands in the files."""
        return {ours: Layout(theirs) for ours, theirs in self.NAMES.items()} | within("stack", self.LAYER, self.LAYERS)

    def lacking(self, config: Config) -> set[str]:
        """Tensors that a model of this config.json does not have, and that are 0 here."""
        return set()

    def context(self, config: Config) -> int:
        return config.integer(*self.CONTEXT)

    def head(self, config: Config) -> Head:
        """The head of the architecture that config.json names; `config` collects the fault if minitf has none."""
        named = config.get("architectures") or [self.HEADS[0].architecture]
        heads = [head for head in self.HEADS if named == [head.architecture]]
        if not heads:
            known = dict.fromkeys(head.architecture for head in self.HEADS)
            config.refuse("architectures", f"of {self.kind} minitf has {', '.join(known)}")
            return self.HEADS[0]
        if len(heads) > 1:  # the same for classes and for numbers
            numbers = config.get("problem_type") == "regression" or config.n_labels == 1
            heads = [head for head in heads if head.numbers == numbers] or heads
        return heads[0]

    def pooling(self, config: Config, head: Head) -> dict[str, str]:
        """The setting `pool` of the objective of a head of whole texts, else none."""
        if len(head.pools) > 1:
            return {"pool": config.word(self.POOL, self.POOLS, next(iter(self.POOLS)))}
        return {"pool": head.pools[0]} if head.pools else {}

    def sections(self, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """`recipe` for the values of the config.json of a folder, as JSON, with all settings of the model."""
        config = Config(values, str(folder / "config.json"))
        recipe = self.recipe(config, folder)
        settings = {key: value for key, value in recipe["model"].items() if key != "kind"}
        try:
            model = settings_of("models", self.MODEL).model_validate(settings)
        except ValidationError as error:
            raise no_such_model(error, config.where, "model") from error
        return recipe | {"model": {"kind": self.MODEL} | model.model_dump(mode="json")}

    def recipe(self, config: Config, folder: Path) -> dict[str, Any]:
        """The sections of a recipe that describe the model of a folder: model, objective, tokenizer, train.

        RunFault, with all faults, if minitf has no such model, or may not have it: for a key that is not known.
        """
        settings: Any = settings_of("models", self.MODEL)
        config.rename(self.KEY_ALIASES)
        head = self.head(config)
        model = self.settings(config, head)
        self._refuse_other_models(config, settings)
        objective = {**(head.objective or {"kind": settings.OBJECTIVE}), **head.needs, **self.pooling(config, head)}
        tokenizer = self._tokenizer(config, folder, settings)
        if head.objective == NEXT_TOKEN and (separator := chat_separator(folder, config)) is not None:
            objective, tokenizer = {"kind": "instruct"}, tokenizer | {"separator": separator}
        data = {} if head.data is None else {"train": head.data}
        train = {"steps": 1, "context": self.context(config)}  # a recipe must say how long it trains
        config.integer("vocab_size")
        config.refuse_unread(f"{NO_EFFECT}|{self.NO_EFFECT}")
        config.check()
        return {
            "model": {"kind": self.MODEL} | model,
            "objective": objective,
            "data": data,
            "tokenizer": tokenizer,
            "train": train,
        }

    def _tokenizer(self, config: Config, folder: Path, settings: Any) -> dict[str, Any]:
        roles = {"separator": self.SEPARATOR, "begin": self.BEGIN}
        named = {key: special_token(folder, role, config) for key, role in roles.items() if role is not None}
        named["pad"] = pad_token(folder, config)
        if settings.SOURCE and (first := special_token(folder, "decoder_start_token", config)) is not None:
            named["begin"] = first
        section: dict[str, Any] = {
            "path": str(folder),
            **{key: name for key, name in named.items() if name is not None},
        }
        if settings.SOURCE or "causal" in settings.DIRECTIONS:
            section["ends"] = end_ids(folder, config)
        if settings.SOURCE and (first_id := forced_bos(folder, config)) is not None:
            section["forced_bos"] = first_id
        if settings.SOURCE and (two := find_two(folder)) is not None:
            section |= {"path": str(two[0]), "source": section | {"path": str(two[1])}}
        return section

    def _refuse_other_models(self, config: Config, settings: Any) -> None:
        """Refuse keys of every family that stand for what no model of minitf has."""
        if "auto_map" in config.values:
            config.refuse("auto_map", "it names code of the model's own, which minitf never runs")
        if config.has("quantization_config"):
            must = "minitf reads no quantized weights: save the model with floating-point numbers"
            config.refuse("quantization_config", must)
        config.only("is_encoder_decoder", bool(settings.SOURCE))
        config.only("add_cross_attention", False)
        config.only("cross_attention_hidden_size")
        config.only("tie_encoder_decoder", False)
        config.only("pruned_heads")
        if "causal" not in settings.DIRECTIONS:
            config.only("is_decoder", False)
