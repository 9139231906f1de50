"""What a recipe needs to know of the kinds that it names, each in a section or by a word of its objective.

The contracts themselves stand in their packages, whose settings begin with these; here nothing imports torch.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kinds import Kind, Rules, listing, settings_of
from mini_tf.recipe.values import Share, near, show


class OptimizerSettings(Kind):
    """Keys of every optimizer."""

    PACKAGE = "optimizers"

    lr: float = Field(1e-3, gt=0, le=10)
    """Peak learning rate."""
    embedding_lr: float | None = Field(None, gt=0, le=10)
    """Peak learning rate of embeddings; default lr."""
    head_lr: float | None = Field(None, gt=0, le=10)
    """Peak learning rate of an untied output projection; default lr."""
    weight_decay: float = Field(0.1, ge=0, le=10)
    """Applied to matrices, not to vectors (norms, biases) nor to embeddings."""
    clip: float = Field(1.0, ge=0, le=1e6)
    """Gradient clipping: largest global norm of the gradient; 0 = no clipping."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Layer-wise decay: lr * layer_decay^depth; depth: head 0, last layer 1, ..., embeddings largest."""

    def lr_of(self, role: str) -> float:
        """The peak learning rate of a role: matrix, embedding, head, adapter or vector."""
        if role == "embedding":
            return self.embedding_lr or self.lr
        return (self.head_lr or self.lr) if role == "head" else self.lr

    def build(self, parameters: Any, matmul_dtype: Any) -> Any:
        raise NotImplementedError


class ScheduleSettings(Kind):
    """Keys of every schedule."""

    PACKAGE = "schedules"

    warmup: Annotated[int, Field(ge=0, le=10**12)] | Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Warmup: a number of steps, or a share of the run (5%)."""
    floor: Share = 0.0
    """Final learning rate, as a share of lr."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        """The factor on the peak learning rate at `step` (from 0) of `n_steps`, after a warmup of `warmup_steps`."""
        raise NotImplementedError


class TokenizerSettings(Kind):
    """What every tokenizer that is trained here declares; its settings are keys of the section."""

    PACKAGE = "data.tokenizers"

    MODEL: ClassVar[str]
    """The type of the model in its tokenizer.json."""
    UNIT: ClassVar[str] = "token"
    """What a token is called where losses per token are compared."""
    CHOOSES_SIZE: ClassVar[bool] = True
    """`vocab_size` decides what is learnt; then a sample of a huge text is enough for it."""
    LEAST: ClassVar[tuple[int, str]] = (0, "")
    """The least vocab_size, and what is said of a smaller one."""

    def made(self, content: dict[str, Any]) -> bool:
        """Whether a tokenizer.json is one of this kind."""
        return bool(content["model"].get("type") == self.MODEL)

    def train(self, vocab_size: int, texts: Iterable[str]) -> Any:
        """A `tokenizers.Tokenizer`, to which its special tokens are added still. DataFault where the library crashes on the texts."""
        raise NotImplementedError


Direction = Literal["causal", "bidirectional", "prefix"]
"""Attention to what stands before, to both sides, or to a prefix as a whole and what stands before."""
_SEEN: dict[Direction, str] = {
    "bidirectional": "both sides",
    "causal": "only what stands before",
    "prefix": "a prefix as a whole and what stands before",
}


def seen(directions: Collection[Direction], source: bool) -> str:
    """What a token attends to, in words."""
    if source:
        return "a source and what stands before in the target"
    return " or ".join(words for direction, words in _SEEN.items() if direction in directions)


class PositionLimit(NamedTuple):
    """A kind of position that ends: its key in the model's section, its word, how many positions there are, and whether of a source."""

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
            yield "init_from", "another run is the last one after every training; name it: a folder, or its name in outputs"

    @property
    def causal(self) -> bool:
        """No token attends to what stands behind it, or behind its prefix: the model can write."""
        return "bidirectional" not in self.DIRECTIONS

    @property
    def seen(self) -> str:
        """What a token attends to, in words."""
        return seen({"causal"} if self.causal else {"bidirectional"}, self.SOURCE)

    def mixers(self) -> Sequence[Any]:
        """Settings of the self-attention of its own tokens, layer by layer, as long as they differ."""
        return ()

    def limits(self, context: int) -> Sequence[PositionLimit]:
        """Positions that end; context: `train.context`."""
        return ()

    def attends(self, border: str, direction: Direction) -> str:
        """What each token attends to, in words; border: of a text, such as `its row`; direction: the objective's."""
        return f"each token sees {seen({direction}, self.SOURCE)} and itself, in {border}"

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
    """What the recipe needs to know of a dataset."""

    PACKAGE = "data.datasets"

    REQUIRED: ClassVar[tuple[str, ...]]
    """Columns that there must be, by their roles; `data.fields` says what they are called in the file."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Columns that there may be."""
    TOGETHER: ClassVar[tuple[str, ...]] = ()
    """Columns of which none is named without the others."""
    OF_PAIRS: ClassVar[Mapping[str, str]] = {}
    """What a corpus of pairs that comes along calls the columns, where its rows can be read."""
    ADVICE: ClassVar[str]
    """Which columns are read, in a sentence."""
    UNIT: ClassVar[str] = "examples"
    """What several of them are called."""
    STREAM: ClassVar[bool] = False
    """They are texts on end, which `data.pack`, `data.split: tail` and `train.stream` are about; others stand one a row."""
    SOURCE: ClassVar[bool] = False
    """They have a source side, which may have files and a tokenizer of its own."""
    SHORTEST: ClassVar[int] = 1
    """Tokens of context that one needs at least, its separators among them."""


OF_BEAMS = ("num_beams", "length_penalty", "min_new_tokens", "no_repeat_ngram", "n_best")
"""Options of `generate` that mean something where several texts are followed side by side."""
WITHOUT_BEAMS = dict.fromkeys(OF_BEAMS, "it is for the translations of an encoder-decoder, and {run} is of the kind {model}")
"""`PipelineSettings.WITHOUT` where one text is written at a time."""
GENERATE_OPTIONS = {
    *OF_BEAMS,
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
    """What a recipe knows of an objective."""

    PACKAGE = "objectives"
    DIRECTIONS: ClassVar[frozenset[Direction]]
    """Directions of self-attention that it can be trained with; the model must support one. `prefix`: rows have
    attention orders of their own (`TokenPositions.orders`), and a prompt is a prefix."""
    SOURCE: ClassVar[bool] = False
    """Its rows have a source: it needs an encoder-decoder."""
    STREAMS: ClassVar[bool] = False
    """Rows may continue from step to step with a recurrent state (`train.stream`); its task has `start` and `trim`."""
    DATASET: ClassVar[str] = "text"
    """Type of its dataset: a word of the package `data.datasets`."""
    PIPELINE: ClassVar[str | None] = None
    """Pipeline of its trained models: a word of the package `pipelines`; None: only their loss can be evaluated."""
    TASK: ClassVar[bool] = False
    """It is a downstream task, not pretraining."""
    TOKENS: ClassVar[tuple[str, ...]] = ()
    """Special tokens that it needs, such as "mask"; a foreign tokenizer without them gets them added."""
    PREDICTS_TOKENS: ClassVar[bool] = False
    """The model's logits are over the vocabulary: the model can generate text or fill masks."""
    TOKEN_LOSS: ClassVar[str | None] = None
    """The part of the loss that is a cross-entropy of tokens in nats, for perplexity; None if there is none."""
    LOSS_UNIT: ClassVar[str] = "nats per label"
    """Unit of the loss if `TOKEN_LOSS` is None."""
    EVERY_TOKEN: ClassVar[bool] = False
    """Every token of a text is a target of `TOKEN_LOSS` exactly once, so bits per byte are defined."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """Further metrics of its task, by the names that --assert uses; the pipeline has metrics of its own."""
    TRAINING_ONLY: ClassVar[Mapping[str, str]] = {}
    """Settings that change only the training loss, not the validation loss, each with its name in words."""

    def dataset(self) -> Any:
        """The settings of its dataset type."""
        return settings_of("data.datasets", self.DATASET)()

    @classmethod
    def lacking(cls) -> str | None:
        named = {"data.datasets": ("dataset", cls.DATASET), "pipelines": ("pipeline", cls.PIPELINE)}
        for package, (what, word) in named.items():
            if word is not None and word not in (words := listing(package)):
                similar = near(word, words)
                hint = f"did you mean {similar!r}?" if similar else f"there are: {', '.join(words)}"
                return f"names the {what} {show(word)}, which does not exist; {hint}"
        return None

    def uses(self) -> Iterator[Kind]:
        yield self.dataset()
        if (pipeline := self.pipeline()) is not None:
            yield pipeline

    @classmethod
    def pipeline(cls) -> Any:
        """The settings of its pipeline; None if it has none."""
        return None if cls.PIPELINE is None else settings_of("pipelines", cls.PIPELINE)()

    @classmethod
    def direction(cls, model: ModelSettings | type[ModelSettings]) -> Direction | None:
        """Direction of the model's self-attention under this objective, causal before prefix; None if incompatible."""
        common = sorted(cls.DIRECTIONS & model.DIRECTIONS)
        return common[0] if common and cls.SOURCE == model.SOURCE else None

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the classes or tags, if the recipe lists them."""
        return None

    def prompts_are_prefixes(self, model: ModelSettings) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions, as in training."""
        return self.direction(model) == "prefix"

    def rules_with(self, model: ModelSettings) -> Rules:
        """Further rules between the objective and the model, by full recipe keys ("objective.pool")."""
        return ()

    def build(self, vocabulary: Any, labels: Any = None) -> Any:
        raise NotImplementedError
