"""Base settings of the kinds that a recipe names, in a section or by its objective.

The full contracts are in the packages of the kinds, whose settings derive from these. Does not import torch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings.directions import Direction, attended_tokens
from mini_tf.recipe.kind_settings.inference_settings import inference_settings
from mini_tf.recipe.kinds import Kind, Rules, listing, settings_of
from mini_tf.recipe.values import Share, show
from mini_tf.system.errors import suggest


class OptimizerSettings(Kind):
    """Keys of every optimizer."""

    PACKAGE = "optimizers"
    FEATURE_KEYS: ClassVar[tuple[str, ...]] = ()
    """Keys that apply only to weights of n-grams (`ObjectiveSettings.has_features`)."""

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
        """The peak learning rate of a role: matrix, embedding, features, head, adapter or vector."""
        if role in ("embedding", "features"):
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


class PositionLimit(NamedTuple):
    """A positional encoding of limited length: key in the section `model`, kind, length, whether it is the source's."""

    key: str
    kind: str
    length: int
    source: bool = False


class ModelSettings(Kind):
    """Facts about a model that recipes need."""

    PACKAGE = "models"
    DIRECTIONS: ClassVar[frozenset[Direction]]
    """Directions of self-attention: only bidirectional, or causal and possibly prefix; the objective selects one."""
    SOURCE: ClassVar[bool] = False
    """It is an encoder-decoder: tokens also attend to a source."""
    PACKS: ClassVar[bool] = True
    """It keeps the documents of a packed row apart, if its mixers do."""
    OBJECTIVE: ClassVar[str]
    """Objective of a recipe that names none."""
    TRAINING_KEYS = frozenset({"init_from"})

    init_from: NonEmptyText | None = None
    """Run or Hugging Face folder to initialize from: its weights, tokenizer and model settings except dropout_rate; new
    parameters are random."""

    def rules(self) -> Rules:
        if self.init_from == "last":
            yield "init_from", "last changes with every run; give a run folder or its name in outputs"

    @property
    def causal(self) -> bool:
        """Self-attention is causal (possibly with a prefix), so the model can generate text."""
        return "bidirectional" not in self.DIRECTIONS

    @property
    def attended_tokens(self) -> str:
        """The tokens that a token attends to, in words."""
        return attended_tokens({"causal"} if self.causal else {"bidirectional"}, self.SOURCE)

    @property
    def per_token_setting(self) -> str:
        """The setting that gives each token an output of its own, if all tokens of a row have one; else empty."""
        return ""

    @property
    def one_vocabulary_key(self) -> str:
        """A key that is given and needs one vocabulary for source and target; empty if there is none."""
        return ""

    def mixers(self) -> Sequence[Any]:
        """Settings of the self-attention of the layers that process the model's own tokens."""
        return ()

    def all_mixers(self) -> Sequence[Any]:
        """Settings of all its mixers."""
        return self.mixers()

    def position_limits(self, context: int) -> Sequence[PositionLimit]:
        """Its positional encodings with a maximum length; context: `train.context`."""
        return ()

    def describe_attention(self, boundary: str, direction: Direction) -> str:
        """The attention mask in words; boundary: such as `its row`; direction: that of the objective."""
        return f"each token attends to {attended_tokens({direction}, self.SOURCE)} and itself, in {boundary}"

    def can_init_from(self, other: "ModelSettings") -> bool:
        """Whether weights of such a model can initialize this one (`init_from`)."""
        of_tokens = not (self.SOURCE or other.SOURCE)
        return self.kind == other.kind or (of_tokens and self.stacks().keys() == other.stacks().keys())

    def stacks(self) -> Mapping[str, Any]:
        """Settings of its stacks by their paths in the model, the stack before the head first."""
        raise NotImplementedError

    def compare_with(self, other: "ModelSettings") -> Iterator[tuple[str, Any, Any]]:
        """Settings that must be equal for `init_from`: recipe keys, and both values as JSON."""
        mine, theirs = inference_settings(self), inference_settings(other)
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


Prediction = Literal["tokens", "every_token", "rows"]
"""What an objective predicts.

- tokens: the model's logits are over the vocabulary, so it can generate text or fill masks;
- every_token: every token of a text is a target of `TOKEN_LOSS` exactly once, so bits per byte are defined;
- rows: one prediction per row, which needs no outputs by token.
"""


class ObjectiveSettings(Kind):
    """Facts about an objective that recipes need."""

    PACKAGE = "objectives"
    DIRECTIONS: ClassVar[frozenset[Direction]]
    """Directions of self-attention that it can be trained with; the model must support one. `prefix`: rows have
    attention orders of their own (`TokenPositions.orders`), and a prompt is a prefix."""
    SOURCE: ClassVar[bool] = False
    """Its batches have a source: it needs an encoder-decoder. The rows of its dataset need not have one."""
    STREAMS: ClassVar[bool] = False
    """Rows may continue from step to step with a recurrent state (`train.stream`); its task has `start` and `carry`."""
    DATASET: ClassVar[str] = "text"
    """Type of its dataset: a word of the package `data.datasets`."""
    PIPELINE: ClassVar[str | None] = None
    """Pipeline of its trained models: a word of the package `pipelines`; None: only their loss can be evaluated."""
    PREDICTS: ClassVar[frozenset[Prediction]] = frozenset()
    """What is predicted; see `predicts`."""
    TOKENS: ClassVar[tuple[str, ...]] = ()
    """Special tokens that it needs, such as "mask"; a foreign tokenizer without them gets them added."""
    TOKEN_LOSS: ClassVar[str | None] = None
    """The part of the loss that is a cross-entropy of tokens in nats, for perplexity; None if there is none."""
    LOSS_UNIT: ClassVar[str] = "nats per label"
    """Unit of the loss if `TOKEN_LOSS` is None."""
    ADDED_TOKENS: ClassVar[int] = 0
    """Tokens that it adds to a row of running text, such as an end token; rows are shorter by as many."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """Further metrics of its task, by the names that --assert uses; the pipeline has metrics of its own."""
    TRAINING_ONLY: ClassVar[Mapping[str, str]] = {}
    """Settings that change only the training loss, not the validation loss, each with its name in words."""
    BASELINES: ClassVar[tuple[str, ...]] = ()
    """Cheap methods that its models are compared with: words of the package `baselines`; see `baselines`."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """METRICS as these settings have them."""
        return self.METRICS

    def dataset(self) -> Any:
        """The settings of its dataset type."""
        return settings_of("data.datasets", self.DATASET)()

    @classmethod
    def missing_dependency(cls) -> str | None:
        named = [("data.datasets", "dataset", cls.DATASET), ("pipelines", "pipeline", cls.PIPELINE)]
        for package, what, word in [*named, *(("baselines", "baseline", word) for word in cls.BASELINES)]:
            if word is not None and word not in (words := listing(package)):
                hint = suggest(word, words, f"there are: {', '.join(words)}", repr)
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
    def predicts(self) -> frozenset[Prediction]:
        """`PREDICTS` with these settings."""
        return self.PREDICTS

    @classmethod
    def is_task(cls) -> bool:
        """It is a downstream task, not pretraining on running text."""
        dataset: Any = settings_of("data.datasets", cls.DATASET)
        return not dataset.STREAM

    @property
    def baselines(self) -> tuple[str, ...]:
        """`BASELINES` with these settings."""
        return self.BASELINES

    @property
    def n_sentinels(self) -> int:
        """Number of sentinel tokens that the tokenizer must have; the output then consists of spans after sentinels."""
        return 0

    @property
    def has_features(self) -> bool:
        """It adds weights of n-grams beside the network, the optimizer's role `features`."""
        return False

    @property
    def fitted_after_training(self) -> frozenset[str]:
        """What is fitted on the validation data after training, to decide on classes: `temperature`, `bias`."""
        return frozenset()

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the classes or tags, if the recipe lists them."""
        return None

    def prompts_are_prefixes(self, model: ModelSettings) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions, as in training."""
        return self.direction(model) == "prefix"

    def rules_with(self, model: ModelSettings, steps: int | None) -> Rules:
        """Further rules between the objective and the recipe, by full recipe keys ("objective.pool").

        steps: of the run, None if the recipe does not say.
        """
        return ()

    def build(self, vocabulary: Any, labels: Any = None) -> Any:
        raise NotImplementedError
