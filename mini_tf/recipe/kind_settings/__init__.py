"""Base settings of the kinds that a recipe names, in a section or by its objective: contracts that need no torch.

What a kind builds is named for type checkers alone. Models and datasets have the rest of their contracts in `nn.model`
and `data.datasets`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field

from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kinds import Kind, Rules, Section, Share

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

    from mini_tf.nn.mixer import MixerSettings
    from mini_tf.nn.model import Model
    from mini_tf.nn.stack import StackSettings
    from mini_tf.optimizers import Optimizer, Parameter


Direction = Literal["causal", "bidirectional", "prefix"]
"""Direction of self-attention: to earlier tokens, to all tokens, or to all tokens of a prefix and earlier tokens."""
_ATTENDED: dict[Direction, str] = {
    "bidirectional": "earlier and later tokens",
    "causal": "earlier tokens",
    "prefix": "a whole prefix and earlier tokens",
}


def attended_tokens(directions: Collection[Direction], source: bool) -> str:
    """The tokens that a token attends to, in words."""
    if source:
        return "a source and earlier target tokens"
    return " or ".join(words for direction, words in _ATTENDED.items() if direction in directions)


def directions_of(supports: Collection[str]) -> list[Direction]:
    """The directions among what a mixer supports, by name."""
    return sorted(direction for direction in get_args(Direction) if direction in supports)


class OptimizerSettings(Kind):
    """Keys of every optimizer."""

    PACKAGE = "optimizers"
    FEATURE_KEYS: ClassVar[tuple[str, ...]] = ()
    """Keys that apply only to weights of n-grams (`ObjectiveSettings.additions`)."""
    CAPTURABLE: ClassVar[bool] = False
    """`Optimizer.update` takes `lr` as a tensor, reads `step_tensor` in place of `step_count` and never waits for the
    device, so that a CUDA graph of it is right in every step."""

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

    def moments(self, parameter: "Parameter") -> "dict[str, Tensor]":
        """The initial state tensors of a parameter (e.g. exp_avg), on its device, of any shape.

        The parameter may be on the meta device, where the memory of training is estimated.
        """
        raise NotImplementedError

    def needs_whole(self, parameter: "Parameter") -> bool:
        """Whether the update of a row depends on other rows, as by a norm or a mean of the whole gradient.

        False: with `runtime.shard: full` a process updates its rows by themselves, and has their rows of the state.
        """
        return True

    def build(self, parameters: "Mapping[str, Parameter]", matmul_dtype: "torch.dtype" = ...) -> "Optimizer":
        """matmul_dtype: dtype of large matrix products, if the optimizer computes any; default torch.float32."""
        raise NotImplementedError

    def weight_decay_of(self, parameter: "Parameter") -> float:
        """The weight decay of a parameter: 0 for vectors (norms, biases), and for embeddings and features, whose rare
        rows have no gradient in most steps and would only shrink."""
        exempt = parameter.role in ("embedding", "features", "vector") or parameter.tensor.dim() < 2
        return 0.0 if exempt else self.weight_decay


class ScheduleSettings(Kind):
    """Keys of every schedule."""

    PACKAGE = "schedules"
    MONOTONE: ClassVar[bool] = True
    """The learning rate never rises after the warmup."""
    CONTINUOUS: ClassVar[bool] = True
    """With many steps the learning rate changes little from one step to the next."""
    REACHES_FLOOR: ClassVar[bool] = True
    """The learning rate would be at the floor one step after the last."""

    warmup: Annotated[int, Field(ge=0, le=10**12)] | Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Warmup: a number of steps, or a share of the run (5%)."""
    floor: Share = 0.0
    """Final learning rate, as a share of lr."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        """The factor on the peak learning rate at `step` (from 0) of `n_steps`, after a warmup of `warmup_steps`."""
        raise NotImplementedError

    def decayed(self, fraction: float) -> float:
        """Interpolate from the peak (fraction 0) to the floor (fraction 1)."""
        return 1 - (1 - self.floor) * fraction


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

    def train(self, vocab_size: int, texts: Iterable[str]) -> "Tokenizer":
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

    def mixers(self) -> "Sequence[MixerSettings]":
        """Settings of the self-attention of the layers that process the model's own tokens."""
        return ()

    def all_mixers(self) -> "Sequence[MixerSettings]":
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

    def stacks(self) -> "Mapping[str, StackSettings]":
        """Settings of its stacks by their paths in the model, the stack before the head first."""
        raise NotImplementedError

    def compare_with(self, other: "ModelSettings") -> Iterator[tuple[str, Any, Any]]:
        """Settings that must be equal for `init_from`: recipe keys, and both values as JSON."""
        mine, theirs = inference_settings(self), inference_settings(other)
        yield from ((key, mine[key], theirs[key]) for key in mine if key in theirs and key != "kind")

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Model":
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


def training_keys(section: Section) -> frozenset[str]:
    """The TRAINING_KEYS of its class and of all base classes."""
    return frozenset(key for base in type(section).__mro__ for key in vars(base).get("TRAINING_KEYS", ()))


def changed_training_keys(section: Section) -> list[str]:
    """Those of `training_keys` whose values are not their defaults."""
    fields, keys = type(section).model_fields, training_keys(section)
    return [key for key, field in fields.items() if key in keys and getattr(section, key) != field.default]


def inference_settings(section: Section) -> dict[str, Any]:
    """What a trained model computes depends on: the section as JSON without `training_keys`, also of inner sections."""
    return _without(section, section.model_dump(mode="json"))  # type: ignore[no-any-return]


def _without(value: Any, dumped: Any) -> Any:
    """dumped: the value as JSON, where a tuple of one item may be that item (`OneOrMore`)."""
    if isinstance(value, tuple) and isinstance(dumped, list):
        return [_without(item, dump) for item, dump in zip(value, dumped, strict=True)]
    if isinstance(value, tuple):
        return _without(value[0], dumped)
    if not isinstance(value, Section):
        return dumped
    left_out = training_keys(value)
    return {key: _without(getattr(value, key), dump) for key, dump in dumped.items() if key not in left_out}
