"""Pipelines: inputs and outputs of trained models, named as Hugging Face names them.

The contract stands here; every other file of this package is one pipeline, whose name an objective says (`PIPELINE`). A pipeline
overrides what it can do: `generation` or `prediction` for one of the two commands, `metric_accumulator` and `written` for
metrics, `sample` for the sample that training saves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from mini_tf.data.labels import Labels
from mini_tf.data.store import Store
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.model import Model
from mini_tf.recipe import kind_settings
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Data
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator


class Subject(Protocol):
    """A model and what it was made with: of a run in training, or of one that was opened."""

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


class Output(NamedTuple):
    """The output for one prompt. result: for JSON, with `notes` if the model does not read all of the prompt; lines: for a file; shown:
    for a prompt that was an argument."""

    result: dict[str, Any]
    lines: list[str]
    shown: list[str]


@dataclass(frozen=True)
class GenerateOptions:
    """How `minitf generate` was called.

    given: its options by name, as far as they were given. context: the most tokens that the model reads. by_line: each prompt is a
    line of a file and gives lines. terminal: stdout is a terminal. json: outputs are printed as JSON. unread: is called once the
    prompts are read, before anything is generated, with what the model does not read of them and of all prompts before. streamer:
    prints a piece of text as soon as it is generated, where one text is generated at a time.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    by_line: bool = False
    terminal: bool = False
    json: bool = False
    unread: Callable[[InputWarnings], None] = lambda unread: None
    streamer: Callable[[str], None] = lambda piece: None


class Generation(Protocol):
    """What `minitf generate` does with prompts. ahead: prompts that are best given together."""

    ahead: int

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        """One output for each prompt, in order. places: file and line of each prompt, if prompts are lines.

        Raises UsageFault at an unfit prompt; if prompts are lines, the outputs for those before it are yielded first.
        """


class Prediction(NamedTuple):
    """A label, and its scores, as `minitf predict` prints them; more: what else stands in the line."""

    label: Any
    scores: Any
    more: Mapping[str, Any] = {}


class Predictor(Protocol):
    """What `minitf predict` does with examples of the run's dataset. unread: what the model did not read of those so far."""

    unread: InputWarnings

    def reader(self, data: Data) -> Any:
        """How rows are read whose columns `data` names; without labels unless they are judged."""

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        """A prediction for each example, one or more; DataFault where one cannot be read, or its true label is unknown."""

    def scores(self) -> dict[str, float]:
        """Figures of all predictions so far, where they are judged."""


class PipelineSettings(kind_settings.PipelineSettings):
    def build(self, subject: Subject) -> "Pipeline":
        return Pipeline(subject)


class Pipeline:
    """What a model can be asked for, beside its loss."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.recipe = subject.recipe

    def metric_accumulator(self) -> MetricAccumulator | None:
        """What makes figures of the outputs of an evaluation."""
        return None

    def written(self, store: Store, most: int | None = None, each_chunk: Callable[[], None] = lambda: None) -> "GeneratedText":
        """What the model makes of the first `most` examples, None = all, each beside what it is compared with (`WRITTEN`).

        each_chunk is called now and then; what it raises ends the work.
        """
        raise NotImplementedError

    def scores(self, written: "GeneratedText") -> dict[str, float]:
        """WRITTEN, of what `written` gave; without those whose packages are missing."""
        raise NotImplementedError

    def signatures(self) -> dict[str, str]:
        """By which rules these were made, as it is published beside them; `NAME_signature`."""
        return {}

    def sample(self, held_out: Store) -> str | None:
        """What is kept of a point in training, for people; None where the model writes nothing."""
        return None

    def generation(self, options: GenerateOptions) -> Generation:
        """Of the command `generate`. UsageFault where the options make no sense."""
        raise NotImplementedError

    def prediction(self, trained: Trained, judged: bool = False) -> Predictor:
        """Of the command `predict`. judged: examples have their true labels, and `scores` then says how good predictions are."""
        raise NotImplementedError


GeneratedText = Iterator[tuple[str, Sequence[str]]]


def pipeline_of(subject: Subject) -> Pipeline:
    """The pipeline of a model's objective; one that can do nothing where it has none."""
    settings = subject.recipe.objective.pipeline()
    built: Pipeline = Pipeline(subject) if settings is None else settings.build(subject)
    return built
