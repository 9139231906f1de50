"""Base class of the settings of pipelines: what the commands need to know of them; no torch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

from mini_tf.recipe.kinds import Kind

if TYPE_CHECKING:
    from mini_tf.pipelines import ModelBundle, Pipeline

BEAM_OPTIONS = ("num_beams", "length_penalty", "min_new_tokens", "no_repeat_ngram", "n_best")
"""Options of `generate` for beam search."""
UNSUPPORTED_BEAM_OPTIONS = dict.fromkeys(
    BEAM_OPTIONS, "beam search needs an encoder-decoder, and {run} is of the kind {model}"
)
"""`PipelineSettings.UNSUPPORTED_OPTIONS` of models without beam search."""


class GenerateKeywords(TypedDict, total=False):
    """Options of `generate`, which pipelines may refuse. Those of a recipe's section `generate` have its meaning."""

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    num_beams: int
    length_penalty: float
    min_new_tokens: int
    no_repeat_ngram: int
    stop: Sequence[str]
    greedy: bool
    num_samples: int
    n_best: int
    seed: int
    logprobs: int
    batch_size: int
    stream: bool


GENERATE_OPTIONS = frozenset(GenerateKeywords.__annotations__)
CONTEXT = "context"
"""One more option, which every pipeline has: the maximum length of a prompt in tokens."""
OPTION_RANGES: Mapping[str, tuple[int, int | None]] = {
    "num_samples": (1, 10_000),
    "n_best": (1, None),
    "seed": (0, 2**63 - 1),
    "logprobs": (0, 1000),
    "batch_size": (1, 4096),
    CONTEXT: (1, 2**20),
}
"""Least and greatest value of the options that no recipe has."""

Framing = Literal["continued", "masked", "example", "source"]
"""What stands around a text: see `generation.prompt_ids.affixes`."""


class PipelineSettings(Kind):
    """Declarations of a pipeline for the commands. Metrics have the names that --assert uses."""

    PACKAGE = "pipelines"

    COMMAND: ClassVar[Literal["generate", "predict"] | None] = None
    """The command that runs such a model."""
    FRAMING: ClassVar[Framing] = "example"
    """How a text is framed: a document that is continued or has masks, an example between separators, or a source."""
    READS_MASKS: ClassVar[bool] = False
    """[MASK] in a prompt is a mask; it always is one to an encoder."""
    UNSUPPORTED_OPTIONS: ClassVar[Mapping[str, str]] = {}
    """Options of `generate` that are refused, with the reason; {run}: the run's name, {model}: its kind of model."""
    DEFAULT_OPTIONS: ClassVar[Mapping[str, Any]] = {}
    """Defaults of options of `generate` that differ from the recipe's section `generate`."""
    ANSWERS_MESSAGES: ClassVar[bool] = False
    """A prompt is a message, or a chat that is answered."""
    DESCRIPTION: ClassVar[str] = "generates text"
    """The model's response to a prompt, for the prompt loop."""
    METRICS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Metrics of the outputs, each with the packages it needs; a class or entity type follows a name's final dot."""
    GENERATION_METRICS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Metrics of generated texts against their references; as METRICS."""
    MAIN_METRICS: ClassVar[tuple[str, ...]] = ()
    """Metrics that rank runs: the first one available, otherwise the loss."""
    LOWER_IS_BETTER: ClassVar[tuple[str, ...]] = ()
    """Those of its metrics of which a lower value is better; of all others a higher one is."""
    SUMMARY_METRICS: ClassVar[tuple[str, ...]] = ()
    """Metrics of the summary line of an evaluation."""
    ENSEMBLES: ClassVar[bool] = False
    """Predictions of several models can be averaged (`train.ensemble`)."""
    PLOTS: ClassVar[Mapping[str, bool]] = {}
    """Plots of an evaluation, and whether each is shown by default if there are few classes: `confusion`, for a metric
    accumulator that is a `training.evaluation.ClassPredictions`; `calibration`, for a `ClassProbabilities`."""
    TEXT_SCORES: ClassVar[Mapping[str, str]] = {}
    """Ways to score a text by a log-probability (`evaluate --pairs`), the default first, each with its description."""
    BABYLM_BACKENDS: ClassVar[Mapping[str, str]] = {}
    """Those of TEXT_SCORES by which BabyLM's evaluation pipeline scores such a model, each with its name there."""
    PREDICTS_CLASSES: ClassVar[bool] = False
    """It predicts classes, with the options --top and --threshold of `predict`."""
    CHECK_COPYING: ClassVar[bool] = False
    """The last sample is compared with the training data, to report verbatim copies."""

    def build(self, bundle: "ModelBundle") -> "Pipeline":
        raise NotImplementedError

    def metrics_for(self, classes: Sequence[str] | None = None) -> tuple[str, ...]:
        """Names of METRICS that exist with these classes; None: all."""
        return tuple(self.METRICS)

    def classes_of(self, metric: str, classes: Sequence[str]) -> Sequence[str]:
        """Names that may complete a metric's name after its dot, for a run with these classes."""
        return classes
