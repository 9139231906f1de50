"""Base settings of objectives: what recipes and commands need to know of them; no torch."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from mini_tf.recipe.kind_settings import Direction, ModelSettings
from mini_tf.recipe.kind_settings.pipelines import PipelineSettings
from mini_tf.recipe.kinds import Kind, Rules, listing, settings_of
from mini_tf.recipe.values import show
from mini_tf.system.errors import UsageFault, suggest

if TYPE_CHECKING:
    from mini_tf.data.datasets import Dataset
    from mini_tf.data.examples import Labels
    from mini_tf.data.tokenization.vocabulary import Vocabulary
    from mini_tf.nn.layers.head import Pool
    from mini_tf.objectives import Objective
    from mini_tf.recipe.sections import Train

Value = TypeVar("Value")
Ability = Literal[Direction, "source", "streaming"]
"""What an objective is trained with.

- causal, bidirectional, prefix: directions of self-attention, of which the model must support one. prefix: rows have
  attention orders of their own (`TokenPositions.orders`), and a prompt is a prefix unless `CAUSAL_PROMPTS`;
- source: its batches have a source, so the model must be an encoder-decoder. The rows of its dataset need not have one;
- streaming: rows may continue from step to step with a recurrent state (`train.stream`), which its task returns.
"""
Prediction = Literal["tokens", "every_token", "rows"]
"""What an objective predicts.

- tokens: the model's logits are over the vocabulary, so it can generate text or fill masks;
- every_token: every token of a text is a target exactly once, so bits per byte are defined;
- rows: one prediction per row, which needs no outputs by token.
"""
Addition = Literal["features", "temperature", "bias"]
"""What an objective adds to the outputs of the network.

- features: weights of n-grams, which have a role of their own in the optimizer;
- temperature, bias: fitted on the validation data after training, to decide on classes.
"""
NATS_PER_TOKEN = "nats per token"
"""`LOSS_UNIT` of a loss whose first part is a cross-entropy of tokens; the exponential of that is the perplexity."""


class _BySettings:
    def __init__(self, declaration: Callable[[Any], Any]) -> None:
        self.declaration = declaration

    def __get__(self, settings: Any, owner: Any) -> Any:
        return self.declaration(owner() if settings is None else settings)


def by_settings(declaration: Callable[[Any], Value]) -> Value:
    """A class variable whose value depends on the settings; that of the class is that of its defaults."""
    return _BySettings(declaration)  # type: ignore[return-value]


class ObjectiveSettings(Kind):
    """Facts about an objective that recipes need. A class variable may be a function of the settings: `by_settings`."""

    PACKAGE = "objectives"
    SUPPORTS: ClassVar[frozenset[Ability]]
    """Models and training that it supports."""
    DATASET: ClassVar[str] = "text"
    """Type of its dataset: a word of the package `data.datasets`."""
    PIPELINE: ClassVar[str | None] = None
    """Pipeline of its trained models: a word of the package `pipelines`; None: only their loss can be evaluated."""
    PREDICTS: ClassVar[frozenset[Prediction]] = frozenset()
    """What is predicted."""
    CAUSAL_PROMPTS: ClassVar[bool] = False
    """With the direction prefix: a prompt is nevertheless no prefix, but causal as what continues it."""
    ALSO_MODEL: ClassVar[str | None] = None
    """Kind of model that the weights are those of, too, for export: position i of it predicts token i + 1, too."""
    TOKENS: ClassVar[tuple[str, ...]] = ()
    """Special tokens that it needs, such as "mask", "sentinel" once for each; the tokenizer gets those that it lacks.
    With sentinels the model's output consists of spans, each after its sentinel."""
    LOSS_UNIT: ClassVar[str] = "nats per label"
    """Unit of the loss; `NATS_PER_TOKEN` is special."""
    HEAD: ClassVar[bool] = True
    """Its models have an output layer, for tokens or a task; else their outputs are hidden states."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """Further metrics of its task, by the names that --assert uses; the pipeline has metrics of its own."""
    BASELINES: ClassVar[tuple[str, ...]] = ()
    """Cheap methods that its models are compared with: words of the package `baselines`."""

    def dataset(self) -> "Dataset":
        return settings_of("data.datasets", self.DATASET)()  # type: ignore[return-value]

    @classmethod
    def pipeline(cls) -> "PipelineSettings | None":
        """The settings of its pipeline; None if it has none."""
        return None if cls.PIPELINE is None else settings_of("pipelines", cls.PIPELINE)()  # type: ignore[return-value]

    @classmethod
    def missing_dependency(cls) -> str | None:
        named = [("data.datasets", "dataset", cls.DATASET), ("pipelines", "pipeline", cls.PIPELINE)]
        for package, noun, word in [*named, *(("baselines", "baseline", word) for word in cls.BASELINES)]:
            if word is not None and word not in (words := listing(package)):
                hint = suggest(word, words, f"there are: {', '.join(words)}", repr)
                return f"names the {noun} {show(word)}, which does not exist; {hint}"
        return None

    def uses(self) -> Iterator[Kind]:
        yield self.dataset()
        if (pipeline := self.pipeline()) is not None:
            yield pipeline

    @classmethod
    def direction(cls, model: ModelSettings | type[ModelSettings]) -> Direction | None:
        """Direction of the model's self-attention under this objective, causal before prefix; None if incompatible.

        prefix: the tokens of a prompt attend to each other in both directions, as in training.
        """
        common = sorted(model.DIRECTIONS & cls.SUPPORTS)
        return common[0] if common and ("source" in cls.SUPPORTS) == model.SOURCE else None

    def prompt_is_prefix(self, model: ModelSettings) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions."""
        return self.direction(model) == "prefix" and not self.CAUSAL_PROMPTS

    @property
    def teacher_run(self) -> str | None:
        """Run or Hugging Face folder of a trained model that training needs besides its own; None: none."""
        return None

    @property
    def pooling(self) -> "Pool":
        """How a vector of a text is made of its hidden states."""
        return "mean"

    @property
    def normalizes(self) -> bool:
        """Such a vector has length 1."""
        return False

    @property
    def additions(self) -> frozenset[Addition]:
        """What it adds to the outputs of the network."""
        return frozenset()

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the classes or tags, if the recipe lists them."""
        return None

    def text_score(self, kind: str | None, run: str, option: str) -> tuple[str, str]:
        """The way to score a text, by default the first one of its pipeline, and its description.

        UsageFault, which names the `run` and the `option` that needs it, if there is none or not this one.
        """
        pipeline = self.pipeline()
        if pipeline is None or not pipeline.TEXT_SCORES:
            others = [word for word in listing("objectives") if _scores_texts(word)]
            message = f"{option}: {run} has the objective {self.kind}, which gives texts no probability"
            raise UsageFault(message, hint=f"others do: {', '.join(others)}")
        if kind is not None and kind not in pipeline.TEXT_SCORES:
            raise UsageFault(f"--score {kind}: {run} has {' or '.join(pipeline.TEXT_SCORES)}")
        return kind or next(iter(pipeline.TEXT_SCORES)), pipeline.TEXT_SCORES[kind or next(iter(pipeline.TEXT_SCORES))]

    def rules_with(self, model: ModelSettings, train: "Train") -> Rules:
        """Further rules between the objective and the recipe, by full recipe keys ("objective.pool")."""
        return ()

    def build(self, vocabulary: "Vocabulary", labels: "Labels | None" = None) -> "Objective":
        """The objective. labels: classes or statistics of the labels in the data, for labelled datasets.

        Raises DataFault if the vocabulary lacks a special token that the objective needs.
        """
        raise NotImplementedError


def _scores_texts(word: str) -> bool:
    """Whether models of this objective give texts a probability."""
    settings: Any = settings_of("objectives", word)
    return (pipeline := settings().pipeline()) is not None and bool(pipeline.TEXT_SCORES)
