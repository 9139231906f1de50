"""The schema of a recipe, once: reading, overrides, help, JSON Schema and the resolved recipe of a run all come from it."""

import re
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from mini_tf.recipe.data import Data as Data
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import Kind, Rule, Rules, Section, listing, settings_of
from mini_tf.recipe.values import Seconds, Share, show

Count = Annotated[int, Field(ge=1, le=10**12)]


class SingleTokenizer(Section):
    """A tokenizer that is trained here, or taken from a file."""

    kind: Literal[listing("data.tokenizers")] = "bpe"  # type: ignore[valid-type]
    """What a token is, where the tokenizer is trained here."""
    vocab_size: int = Field(4096, ge=8, le=1_000_000)
    """Number of tokens, special ones included (at most, for unigram and wordpiece); char and byte find their own."""
    path: NonEmptyText | None = None
    """A tokenizer.json, vocab.txt, vocab.json or a run to take the tokenizer from, instead of training one."""

    @property
    def trainer(self) -> TokenizerSettings:
        """What the kind declares, and trains."""
        trainer = settings_of("data.tokenizers", self.kind)()
        assert isinstance(trainer, TokenizerSettings)
        return trainer

    @property
    def uses_vocab_size(self) -> bool:
        return self.trainer.USES_VOCAB_SIZE

    def uses(self) -> Iterator[Kind]:
        if self.path is None:
            yield self.trainer

    def rules(self) -> Rules:
        if self.path == "last":
            yield "path", "another run is the last one after every training; name it: a folder, or its name in outputs"
        if self.path is None and self.vocab_size < (least := self.trainer.MIN_VOCAB_SIZE)[0]:
            yield Rule("vocab_size", f"{self.vocab_size} {least[1]}", ("kind", "path"))


class Tokenizer(SingleTokenizer):
    source: SingleTokenizer | None = None
    """Of pairs: a tokenizer of its own for the source side; null: one for both."""


HORIZONS = ("steps", "tokens", "epochs", "time")
"""The keys of `train` that say how long; exactly one of them is given."""
BATCHES = ("batch_size", "batch_tokens")
"""The keys of `train` that say how much a step learns from; a later one replaces an earlier one."""


class Train(Section):
    steps: Count | None = None
    """How long: optimizer steps."""
    tokens: Count | None = None
    """How long: tokens read."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """How long: passes over the text."""
    time: Seconds | None = None
    """How long: seconds of training; written 30m."""
    batch_size: int = Field(32, ge=1, le=2**20)
    """Sequences an optimizer step, over all micro-batches and processes."""
    batch_tokens: Annotated[int, Field(ge=1, le=2**30)] | None = None
    """In place of batch_size: as many rows of about the same length as have so many tokens, padding included (pairs: on either side)."""
    micro_batch_size: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Sequences a forward pass; changes memory and speed, not what is learnt. A run may be continued with another."""
    context: int = Field(128, ge=1, le=2**20)
    """Length of a row in tokens."""
    stream: bool = False
    """Rows continue from step to step and the model's state is carried along."""
    freeze: tuple[NonEmptyText, ...] = Field((), max_length=1024)
    """Parameters that do not learn, by patterns of their names: [embedding.*, stack.layers.0.*]; `minitf inspect model` has the names."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Decides every random draw of the run."""
    seeds: int = Field(1, ge=1, le=1000)
    """Runs of the recipe, with seed, seed + 1, ..., in folders seed-1, seed-2, ... of the run's; its own model is the median run's."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is not finite ends the run before the step (exit 7), or the step is left out and counted."""
    most_skips: int = Field(10, ge=1, le=10**6)
    """Steps in a row that may be left out so, before the run ends all the same."""
    stop_above: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """A training loss above this ends the run as diverged (exit 7)."""

    @classmethod
    def inherited(cls, below: Mapping[str, Any], given: Set[str]) -> dict[str, Any]:
        replaced = {key for group in (HORIZONS, BATCHES) if given & {*group} for key in group}
        return {key: node for key, node in below.items() if key not in replaced}

    def rules(self) -> Rules:
        given = [name for name in HORIZONS if getattr(self, name) is not None]
        if not given:
            yield Rule("", f"must say how long: one of {', '.join(HORIZONS)}, such as steps: 2000", HORIZONS)
        elif len(given) > 1:
            yield given[1], f"{' and '.join(given)} are given; keep exactly one of {', '.join(HORIZONS)}"
        if self.micro_batch_size != "auto" and self.batch_tokens is None and self.batch_size % self.micro_batch_size:
            divisors = (d for d in range(1, self.batch_size + 1) if self.batch_size % d == 0)
            nearest = min(divisors, key=lambda d: abs(d - int(self.micro_batch_size)))
            what = f"{self.micro_batch_size} does not divide batch_size {self.batch_size}; use {nearest}"
            yield Rule("micro_batch_size", what, BATCHES)
        if self.batch_tokens is not None and self.batch_tokens < self.context:
            yield Rule("batch_tokens", f"{self.batch_tokens} do not hold a row of context {self.context}", ("context",))
        if self.seed + self.seeds > 2**63:
            what = f"seed {self.seed} and {self.seeds} seeds from there on are more than there are; use a smaller seed"
            yield Rule("seeds", what, ("seed",))
        if self.batch_tokens is not None and self.stream:
            yield Rule("batch_tokens", "a stream's rows all have the same length; use batch_size", ("stream",))

    @property
    def step_tokens(self) -> int:
        """Tokens that a step reads, at most; of pairs, on either side."""
        return self.batch_tokens or self.batch_size * self.context


class Adapter(Section):
    kind: Literal["lora"] = "lora"
    """lora: the matrices stay as they are, and beside each two narrow ones are learnt (Hu et al. 2021, arXiv:2106.09685)."""
    rank: int = Field(8, ge=1, le=4096)
    """Width of the narrow matrices."""
    alpha: float = Field(16.0, gt=0, le=1e6)
    """What they add is multiplied by alpha / rank."""
    targets: Annotated[tuple[NonEmptyText, ...], Field(min_length=1, max_length=1024)] | None = None
    """Which matrices of the model get some, by patterns of their names; null: those of all layers."""
    merge: bool = False
    """model.safetensors is a plain model, what was learnt added to its matrices; checkpoints keep both apart."""

    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, str) and given == "lora":
            raise PydanticCustomError("value", "{m}", {"m": "must be a mapping such as {kind: lora}, got 'lora'"})
        return super()._read(given)


class Eval(Section):
    FORMER_DEFAULTS: ClassVar[Mapping[str, Any]] = {"tokens": None}

    every_steps: Count | Literal["auto"] = "auto"
    """auto: ten times a run, or less often where a run takes seconds."""
    tokens: Count | Literal["auto"] | None = "auto"
    """Validation tokens of each evaluation during training, spread evenly; auto: few enough to cost little; null: all. At the end all."""
    translations: int = Field(64, ge=0, le=10**6)
    """Held-out sources or prompts that are answered at each evaluation point, for BLEU, chrF and ROUGE; the last takes all. 0 = none."""
    patience: Count | None = None
    """Stop after so many evaluations without a better loss."""


class Checkpoint(Section):
    every_steps: Count | Literal["auto"] = "auto"
    """auto: as often as evaluation."""
    keep_last: int = Field(2, ge=1, le=10_000)
    """Newest checkpoints kept."""
    keep_best: int = Field(1, ge=0, le=10_000)
    """Checkpoints with the best validation loss kept besides."""
    resume: Literal["auto", "exact"] = "auto"
    """Where software or machine changed, so that the result could differ in a bit: auto warns and continues, exact refuses."""


class Log(Section):
    every_steps: Count = 10
    """Steps between two reports."""
    samples: int = Field(1, ge=0, le=100)
    """Texts sampled at each evaluation point; 0 = none."""


class Runtime(Section):
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Numbers in the forward pass; weights and optimizer are always fp32. auto measures whether bf16 is faster."""
    compile: Literal["auto"] | bool = "auto"
    """Whether torch.compile is used. auto tries it where a run is long enough to pay for that."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """CPU threads; auto: the cores this process may use, or fewer where that is measured to be faster."""

    def rules(self) -> Rules:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?|mps", self.device):
            yield "device", f"must be auto, cpu, cuda, cuda:N or mps, got {show(self.device)}"


class Generate(Section):
    prompt: str = ""
    """What the samples of a run begin with."""
    max_new_tokens: int = Field(200, ge=1, le=10**6)
    """Length of a sample."""
    temperature: float = Field(0.8, ge=0, le=100)
    """Below 1: safer; above 1: wilder; 0: always the likeliest token."""
    top_k: Count | None = 50
    """Draw from so many of the likeliest tokens; null: from all."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the fewest likeliest tokens whose probabilities reach this sum; 1: from all."""
    min_p: Share = 0.0
    """Draw from tokens that are at least this share as likely as the likeliest; 0: from all."""
    repetition_penalty: float = Field(1.0, ge=0.01, le=100)
    """Above 1: tokens of the text so far become less likely; 1: no penalty."""
    num_beams: int = Field(4, ge=1, le=1024)
    """encoder_decoder: texts that are followed side by side; 1: always the likeliest token."""
    length_penalty: float = Field(0.6, ge=-10, le=10)
    """encoder_decoder: a text's log-probability is divided by ((5 + length) / 6) to this power; 0: by nothing, above: longer texts."""
    min_new_tokens: int = Field(0, ge=0, le=10**6)
    """encoder_decoder: no text is shorter."""
    no_repeat_ngram: int = Field(0, ge=0, le=1000)
    """encoder_decoder: so many tokens in a row occur once at most; 0: no matter."""
    stop: tuple[NonEmptyText, ...] = Field((), max_length=64)
    """Where one of these is written the text ends, before it."""

    @property
    def greedy(self) -> bool:
        """Nothing is left to chance."""
        return self.temperature == 0 or self.top_k == 1

    def rules(self) -> Rules:
        if self.min_new_tokens > self.max_new_tokens:
            yield Rule("min_new_tokens", f"{self.min_new_tokens} is more than max_new_tokens {self.max_new_tokens}", ("max_new_tokens",))
