"""Pipelines: inputs and outputs of trained models, named after Hugging Face's pipelines.

The contract is here; every other file of this package is one pipeline, named by an objective (`PIPELINE`). A pipeline
overrides what it supports: `generator` or `predictor` for one of the two commands, `metric_accumulator` and
`generate_with_references` for metrics, `sample` for the samples that training saves, `text_scorer` for minimal pairs
and surprisal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from mini_tf.data.examples import Labels
from mini_tf.data.store import Store
from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.generation.text_generator import Follower
from mini_tf.nn.model import Model
from mini_tf.parallel.group import ProcessGroup
from mini_tf.recipe.kind_settings.pipelines import PipelineSettings as PipelineSettings
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Data
from mini_tf.run.manifest import Decision
from mini_tf.trained.evaluating import evaluate_trained
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator

P = TypeVar("P", bound="Pipeline")


class ModelBundle(Protocol):
    """A model with its recipe, tokenizers and labels; of a run in training or of an opened one."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def model(self) -> Model: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def source_tokenizer(self) -> Tokenizer: ...
    @property
    def labels(self) -> Labels | None: ...
    @property
    def decision(self) -> Decision | None: ...


class Fitter(MetricAccumulator, Protocol):
    """A metric accumulator that fits a decision; both attributes are those of the last call of `scores`.

    lines: messages about it.
    """

    decision: Decision
    lines: list[str]


class Output(NamedTuple):
    """The output for one prompt.

    result: for --json, with the `texts`, and `notes` if the prompt was truncated or has unknown characters. lines: for
    a prompt that was a line of a file. shown: for a prompt that was an argument. Of a decoder n_prompt: tokens of the
    prompt; ends: of each text its number of tokens, and whether it ended by itself or by a stop string.
    """

    result: dict[str, Any]
    lines: list[str]
    shown: list[str]
    n_prompt: int = 0
    ends: Sequence[tuple[int, bool]] = ()


@dataclass(frozen=True)
class GenerateOptions:
    """Options of `minitf generate`.

    explicit: the options that were set, by name. context: maximum prompt length in tokens; default the model's.
    by_line: each prompt is a line of a file. terminal: stdout is a terminal. json: outputs are printed as JSON.
    on_unread: called after the prompts are tokenized, before generation, with the truncated tokens and unknown
    characters of all prompts so far. streamer: prints each piece of text when it is generated; used only if one text is
    generated at a time. follow: called after each token of a decoder's texts that are generated together. warn: called
    with a line if generation takes longer than it should.
    """

    explicit: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    by_line: bool = False
    terminal: bool = False
    json: bool = False
    on_unread: Callable[[InputWarnings], None] = lambda unread: None
    streamer: Callable[[str], None] = lambda piece: None
    follow: Follower | None = None
    warn: Callable[[str], None] = lambda line: None


class Generator(Protocol):
    """Generates outputs for prompts (`minitf generate`). chunk_size: the number of prompts to pass at once. streams:
    texts are printed while they are generated.
    """

    chunk_size: int
    unread: InputWarnings
    streams: bool

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        """One output per prompt, in order. places: file and line of each prompt, if prompts are lines.

        UsageFault for an invalid prompt; if prompts are lines, the outputs of those before it are yielded first.
        """


class Prediction(NamedTuple):
    """A label and its scores, as `minitf predict` prints them; more: further keys of the output line."""

    label: Any
    scores: Any
    more: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        return {**self.more, "label": self.label, "scores": self.scores}


@dataclass(frozen=True)
class PredictOptions:
    """Options of `minitf predict` and `minitf evaluate`, for pipelines with PREDICTS_CLASSES.

    top: also give so many of the most probable classes. thresholds: the probability that a class needs to be the label;
    None: every class that is not named.
    """

    top: int | None = None
    thresholds: Mapping[str | None, float] = field(default_factory=dict)


class Predictor(Protocol):
    """Predicts labels of examples (`minitf predict`). unread: truncated tokens and unknown characters so far."""

    unread: InputWarnings

    def reader(self, data: Data) -> Any:
        """A reader of rows whose columns `data` names; it reads labels only if the predictor is `labelled`."""

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        """One prediction per example; at least one example. DataFault for an invalid example or true label."""

    def scores(self) -> dict[str, float]:
        """Metrics of all predictions so far; needs true labels."""


class Pipeline:
    """Inputs and outputs of a model beyond its loss; this base class supports none."""

    def __init__(self, bundle: ModelBundle) -> None:
        self.bundle = bundle
        self.recipe = bundle.recipe

    def with_options(self: P, options: PredictOptions) -> P:
        """This pipeline, with options that its settings declare to support."""
        return self

    def metric_accumulator(self) -> MetricAccumulator | None:
        """Accumulates the outputs of an evaluation into METRICS; None if there are none."""
        return None

    def decision_fitter(self) -> Fitter | None:
        """Like `metric_accumulator`, but also fits what `ObjectiveSettings.additions` names; None if nothing."""
        return None

    def generate_with_references(
        self,
        store: Store,
        limit: int | None = None,
        each_chunk: Callable[[], None] = lambda: None,
        group: ProcessGroup | None = None,
    ) -> "TextsWithReferences":
        """Generate a text for each of the first `limit` examples (None: all), for GENERATION_METRICS.

        each_chunk is called regularly; an exception from it ends the work. group: processes that divide it.
        """
        raise NotImplementedError

    def scores(self, texts: "TextsWithReferences") -> dict[str, float]:
        """GENERATION_METRICS of generated texts; without those whose packages are missing."""
        raise NotImplementedError

    def signatures(self, texts: "TextsWithReferences") -> dict[str, str]:
        """Signatures of these metrics (sacrebleu's) of these texts, named `METRIC_signature`."""
        return {}

    def zero_notes(self, texts: "TextsWithReferences") -> list[str]:
        """Why some of these metrics are 0 by their definition."""
        return []

    def evaluate(
        self,
        trained: Trained,
        store: Store,
        accumulator: MetricAccumulator | None = None,
        group: ProcessGroup | None = None,
    ) -> dict[str, float]:
        """The metrics of a model on `store`, as `minitf evaluate` prints them, without those of generated texts.

        accumulator: default: `metric_accumulator`. group: processes that evaluate together.
        """
        return evaluate_trained(trained, store, accumulator or self.metric_accumulator(), group)

    def sample(self, validation: Store) -> str | None:
        """The sample that training saves after an evaluation; None if the model generates no text."""
        return None

    def text_scorer(self, kind: str, group: ProcessGroup | None = None) -> TextScorer:
        """Scores texts and their tokens by a kind of TEXT_SCORES. group: processes that divide the work."""
        raise NotImplementedError

    def generator(self, options: GenerateOptions) -> Generator:
        """For the command `generate`. UsageFault for contradictory options."""
        raise NotImplementedError

    def predictor(
        self, trained: Trained, labelled: bool = False, options: PredictOptions = PredictOptions()
    ) -> Predictor:
        """For the command `predict`. labelled: examples have true labels, for `scores`."""
        raise NotImplementedError


TextsWithReferences = Iterator[tuple[str, Sequence[str]]]
"""Each generated text with its references."""


def pipeline_of(bundle: ModelBundle) -> Pipeline:
    """The pipeline of a model's objective; the base class if it has none."""
    settings = bundle.recipe.objective.pipeline()
    return Pipeline(bundle) if settings is None else settings.build(bundle)


BATCH_SIZE = 8
"""Default of --batch-size."""


def option(name: str) -> str:
    """An option as typed on the command line: --top-k for "top_k"."""
    return "--" + name.replace("_", "-")


def one_line(text: str) -> str:
    """The text as one line, reversibly: a backslash becomes \\\\, a newline \\n."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def notes_entry(notes: Sequence[str]) -> dict[str, Any]:
    """The entry `notes` of a result; empty without notes."""
    return {"notes": [*notes]} if notes else {}
