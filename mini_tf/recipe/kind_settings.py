"""Base settings of the kinds that a recipe names, in a section or by its objective.

The full contracts are in the packages of the kinds, whose settings derive from these. Does not import torch.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kinds import Kind, Rules, listing, settings_of
from mini_tf.recipe.values import Share, near, show


class OptimizerSettings(Kind):
    """What every optimizer has."""

    PACKAGE = "optimizers"

    lr: float = Field(1e-3, gt=0, le=10)
    """Learning rate at the top of the schedule."""
    embedding_lr: float | None = Field(None, gt=0, le=10)
    """Rate for embeddings; default lr."""
    head_lr: float | None = Field(None, gt=0, le=10)
    """Rate for an untied output table; default lr."""
    weight_decay: float = Field(0.1, ge=0, le=10)
    """Applied to matrices, not to vectors (norms, biases) nor to embeddings."""
    clip: float = Field(1.0, ge=0, le=1e6)
    """Largest global norm of the gradient; 0 = no clipping."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """The last layer's rate is multiplied by this, the one before by its square, ...; embeddings learn slowest, the head at full rate."""

    def rate_of(self, role: str) -> float:
        """The learning rate of a `matrix`, `embedding`, `head`, `adapter` or `vector`."""
        if role == "embedding":
            return self.embedding_lr or self.lr
        return (self.head_lr or self.lr) if role == "head" else self.lr

    def build(self, parameters: Any, products: Any) -> Any:
        raise NotImplementedError


class ScheduleSettings(Kind):
    """What every schedule has."""

    PACKAGE = "schedules"

    warmup: Annotated[int, Field(ge=0, le=10**12)] | Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Steps (a whole number), or a share of the horizon (5%)."""
    floor: Share = 0.0
    """Rate at the end, as a share of lr."""

    def share(self, step: int, begin: float, n_steps: float) -> float:
        """The rate of step number `step` (from 0) of `n_steps`, as a share of the peak, after a warmup of `begin` steps."""
        raise NotImplementedError


class TokenizerSettings(Kind):
    """Base class of trained tokenizers; their settings are keys of the section `tokenizer`."""

    PACKAGE = "data.tokenizers"

    MODEL: ClassVar[str]
    """Type of the model in tokenizer.json."""
    UNIT: ClassVar[str] = "token"
    """Name of a token where losses per token are compared."""
    USES_VOCAB_SIZE: ClassVar[bool] = True
    """Whether `vocab_size` is used; then a sample of very large data suffices for training."""
    MIN_VOCAB_SIZE: ClassVar[tuple[int, str]] = (0, "")
    """Smallest vocab_size, and the error message for a smaller one."""

    def matches(self, content: dict[str, Any]) -> bool:
        """Whether a tokenizer.json is of this kind."""
        return bool(content["model"].get("type") == self.MODEL)

    def train(self, vocab_size: int, texts: Iterable[str]) -> Any:
        """A `tokenizers.Tokenizer`; the caller adds special tokens. DataFault if the library crashes on the texts."""
        raise NotImplementedError


Direction = Literal["causal", "bidirectional", "prefix"]
"""Direction of self-attention: to earlier tokens, to all tokens, or to all tokens of a prefix and earlier tokens."""
_ATTENDED: dict[Direction, str] = {
    "bidirectional": "earlier and later tokens",
    "causal": "earlier tokens",
    "prefix": "all tokens of a prefix, earlier tokens",
}


def attended_tokens(directions: Collection[Direction], source: bool) -> str:
    """The tokens that a token attends to, besides itself, as text."""
    if source:
        return "a source, earlier target tokens"
    return " or ".join(tokens for direction, tokens in _ATTENDED.items() if direction in directions)


class PositionLimit(NamedTuple):
    """A positional encoding of limited length: key in the section `model`, kind, length, whether it is the source's."""

    key: str
    kind: str
    length: int
    source: bool = False


class ModelSettings(Kind):
    """What the recipe needs to know of a model."""

    PACKAGE = "models"
    DIRECTIONS: ClassVar[frozenset[Direction]]
    """Directions that self-attention of its own tokens can have: bidirectional alone, or causal, whose mixers may follow the order of
    a prefix too; the objective decides."""
    SOURCE: ClassVar[bool] = False
    """Its tokens attend to a source besides."""
    PACKS: ClassVar[bool] = True
    """It keeps documents that share a row apart, where its mixers do."""
    OBJECTIVE: ClassVar[str]
    """The objective where a recipe names none."""

    init_from: NonEmptyText | None = None
    """A run to begin with: its model, weights and tokenizer; what is new is drawn. The recipe's own keep only dropout_rate."""

    def rules(self) -> Rules:
        if self.init_from == "last":
            yield "init_from", "last changes with every run; give a run folder or its name in outputs"

    @property
    def causal(self) -> bool:
        """No token attends to what stands behind it, or behind its prefix: the model can write."""
        return "bidirectional" not in self.DIRECTIONS

    @property
    def attended_tokens(self) -> str:
        """What a token attends to, in words."""
        return attended_tokens({"causal"} if self.causal else {"bidirectional"}, self.SOURCE)

    def mixers(self) -> Sequence[Any]:
        """Settings of the self-attention of its own tokens, layer by layer, as long as they differ."""
        return ()

    def limits(self, context: int) -> Sequence[PositionLimit]:
        """Positions that end; context: `train.context`."""
        return ()

    def attends(self, border: str, direction: Direction) -> str:
        """What each token attends to, in words; border: of a text, such as `its row`; direction: the objective's."""
        return f"each token sees {attended_tokens({direction}, self.SOURCE)} and itself, in {border}"

    def can_start_from(self, other: "ModelSettings") -> bool:
        """Whether weights of such a model mean the same in this one (`init_from`)."""
        return self.kind == other.kind or not (self.SOURCE or other.SOURCE)

    def stacks(self) -> Mapping[str, Any]:
        """The settings of its stacks, by their paths in the model; its own first."""
        raise NotImplementedError

    def compared(self, other: "ModelSettings") -> Iterator[tuple[str, Any, Any]]:
        """What must be the same where it starts from the weights of `other`: keys, and both values as JSON."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        yield from ((key, mine[key], theirs[key]) for key in mine if key in theirs and key != "kind")

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> Any:
        raise NotImplementedError


class DatasetSettings(Kind):
    """Base class of datasets: what the recipe needs."""

    PACKAGE = "data.datasets"

    REQUIRED: ClassVar[tuple[str, ...]]
    """Required columns, by role; `data.fields` maps roles to columns of the file."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Optional columns, by role."""
    TOGETHER: ClassVar[tuple[str, ...]] = ()
    """Columns that must be given together."""
    PAIR_COLUMNS: ClassVar[Mapping[str, str]] = {}
    """Columns of a built-in corpus of pairs by role, if the dataset can read it."""
    COLUMNS_HINT: ClassVar[str]
    """A sentence on which columns are read, for error messages."""
    UNIT: ClassVar[str] = "examples"
    """Name of several examples."""
    STREAM: ClassVar[bool] = False
    """Examples are running text, for `data.pack`, `data.split: tail` and `train.stream`; else one example per row."""
    SOURCE: ClassVar[bool] = False
    """Examples have a source, which may have its own files and tokenizer."""
    MIN_TOKENS: ClassVar[int] = 1
    """Smallest context in tokens that holds an example and its separators."""


BEAM_OPTIONS = ("num_beams", "length_penalty", "min_new_tokens", "no_repeat_ngram", "n_best")
"""Options of `generate` for beam search."""
NO_BEAM_OPTIONS = dict.fromkeys(BEAM_OPTIONS, "it is for encoder-decoders, and {run} is of the kind {model}")
"""`PipelineSettings.WITHOUT` of pipelines without beam search."""
GENERATE_OPTIONS = {
    *BEAM_OPTIONS,
    *("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "num_samples", "stop", "seed", "greedy"),
    *("logprobs", "stream", "batch_size"),
}


class PipelineSettings(Kind):
    """What commands need to know of a pipeline. Figures are told by the names that --assert uses; all are better when larger."""

    PACKAGE = "pipelines"

    COMMAND: ClassVar[Literal["generate", "predict"] | None] = None
    """The command that asks such a model."""
    WITHOUT: ClassVar[Mapping[str, str]] = {}
    """Options of `generate` that mean nothing here, each with the reason; {run} is the run's name, {model} the kind of its model."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    """Values of options of `generate` that are not given, where they are not those of the recipe's section `generate`."""
    DOES: ClassVar[str] = "answers prompts"
    """What such a model does with a prompt, of the command `generate`."""
    FIGURES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What the outputs of an evaluation are judged by, each with the packages (`scores.PACKAGES`) that it cannot be made without; a name
    that ends in a dot goes on with a class or a type."""
    WRITTEN: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What texts that the model writes are judged by, beside their references; as FIGURES."""
    MAIN: ClassVar[tuple[str, ...]] = ()
    """Figures by which runs are ranked, the first that is there; where none is, by the loss."""
    SPOKEN: ClassVar[tuple[str, ...]] = ()
    """Figures that are told in words."""
    PICTURES: ClassVar[Mapping[str, bool]] = {}
    """Pictures of an evaluation, and whether each is shown unasked where classes are few: `confusion`, where outputs are scores of
    classes; `calibration`, where the judge is `training.evaluation.ClassProbabilities`."""
    COPIES: ClassVar[bool] = False
    """Its samples may stand word for word in the training text, so they are looked for there."""

    def figures(self, classes: Sequence[str] | None = None) -> tuple[str, ...]:
        """FIGURES, or those of them that there are with these classes."""
        return tuple(self.FIGURES)

    def classes_of(self, figure: str, classes: Sequence[str]) -> Sequence[str]:
        """What may stand behind the dot of a figure's name, of a run with these classes."""
        return classes


class ObjectiveSettings(Kind):
    """What the recipe needs to know of an objective."""

    PACKAGE = "objectives"
    DIRECTIONS: ClassVar[frozenset[Direction]]
    """Directions of self-attention that it can be learnt with, of which one is the model's. `prefix`: rows have orders of their own
    (`TokenPositions.orders`), and a prompt is such a prefix."""
    SOURCE: ClassVar[bool] = False
    """Its rows have a source, to which the model attends."""
    STREAMS: ClassVar[bool] = False
    """Its rows may go on from step to step: it leaves their positions to the model, and its task has `start` and `trim`."""
    DATASET: ClassVar[str] = "text"
    """What a row of data is: a word of the package `data.datasets`."""
    PIPELINE: ClassVar[str | None] = None
    """What its models can be asked for: a word of the package `pipelines`; None: for nothing but their loss."""
    TASK: ClassVar[bool] = False
    """It is learnt for its own sake, rather than to begin with."""
    TOKENS: ClassVar[tuple[str, ...]] = ()
    """Special tokens that the question is asked with, which a foreign tokenizer is given if it lacks them: "mask"."""
    PREDICTS_TOKENS: ClassVar[bool] = False
    """The logits of the model are scores of the vocabulary's tokens: text is generated and masks are filled with such a model."""
    TOKEN_LOSS: ClassVar[str | None] = None
    """The part of the loss that is the cross-entropy of tokens in nats, of which perplexity is made; None where there is none."""
    LOSS_UNIT: ClassVar[str] = "nats per label"
    """What the loss is where it is not that of tokens."""
    EVERY_TOKEN: ClassVar[bool] = False
    """That part has every token of a text as a target once, so that it can be given in bits per byte."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """What its task measures besides, by the names that --assert uses; the pipeline has figures of its own."""
    UNLIKE: ClassVar[Mapping[str, str]] = {}
    """Settings that make the training loss another than the validation loss, each with its name in words."""

    def dataset(self) -> Any:
        """What a row of its data is, as settings of the package `data.datasets`."""
        return settings_of("data.datasets", self.DATASET)()

    @classmethod
    def missing_dependency(cls) -> str | None:
        named = {"data.datasets": ("dataset", cls.DATASET), "pipelines": ("pipeline", cls.PIPELINE)}
        for package, (what, word) in named.items():
            if word is not None and word not in (words := listing(package)):
                meant = near(word, words)
                way = f"did you mean {meant!r}?" if meant else f"there are: {', '.join(words)}"
                return f"names the {what} {show(word)}, which does not exist; {way}"
        return None

    def uses(self) -> Iterator[Kind]:
        yield self.dataset()
        if (pipeline := self.pipeline()) is not None:
            yield pipeline

    @classmethod
    def pipeline(cls) -> Any:
        """The settings of its pipeline, None where it has none."""
        return None if cls.PIPELINE is None else settings_of("pipelines", cls.PIPELINE)()

    @classmethod
    def direction(cls, model: ModelSettings | type[ModelSettings]) -> Direction | None:
        """The direction of a model's self-attention under this objective, causal before prefix; None where the two do not fit."""
        fitting = sorted(cls.DIRECTIONS & model.DIRECTIONS)
        return fitting[0] if fitting and cls.SOURCE == model.SOURCE else None

    @property
    def classes(self) -> Sequence[str] | None:
        """The classes or tags by name, where the recipe lists them."""
        return None

    def prompts_are_prefixes(self, model: ModelSettings) -> bool:
        """Whether the tokens of a text that such a model is given all see each other, as in training."""
        return self.direction(model) == "prefix"

    def rules_with(self, model: ModelSettings) -> Rules:
        """What it and the model must be to each other besides; keys are those of the whole recipe ("objective.pool")."""
        return ()

    def build(self, vocabulary: Any, labels: Any = None) -> Any:
        raise NotImplementedError
