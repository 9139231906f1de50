"""The recipe sections. Parsing, overrides, help, JSON Schema and resolved.yaml all come from these classes."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from mini_tf.recipe.data import Data as Data
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import Kind, Rule, Rules, Section, Share, listing, settings_of
from mini_tf.recipe.parsing.schema_faults import faults_of, invalid
from mini_tf.recipe.values import SECONDS, show
from mini_tf.system.errors import UsageFault

Count = Annotated[int, Field(ge=1, le=10**12)]
Seconds = Annotated[float, Field(gt=0, le=1e9), SECONDS]
"""A time in seconds; may be written as 90s, 30m, 2h or 1d."""

TokenId = Annotated[int, Field(ge=0, lt=2**32)]
ROLES = ("separator", "begin", "pad", "ends", "forced_bos")
"""Keys that say what special tokens of a loaded tokenizer are for."""


class SingleTokenizer(Section):
    """A tokenizer, trained on the data or loaded from a file."""

    kind: Literal[listing("data.tokenizers")] = "bpe"  # type: ignore[valid-type]
    """Kind of tokenizer to train."""
    vocab_size: int = Field(4096, ge=8, le=1_000_000)
    """Vocabulary size with special tokens (an upper limit for unigram and wordpiece); not used by char and byte."""
    lowercase: bool = False
    """Lowercase all text first, in training and afterwards."""
    path: NonEmptyText | None = None
    """Tokenizer to load instead of training one: tokenizer.json, vocab.txt, vocab.json, SentencePiece model or run."""
    extend: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Tokens to add to a loaded byte-pair tokenizer from the training text; their embeddings begin as their pieces'."""
    separator: NonEmptyText | None = None
    """Special token between documents of a loaded tokenizer; null: its end of text, found by its usual names."""
    begin: NonEmptyText | None = None
    """Special token of a loaded tokenizer before a text that stands alone, and before targets; null: the separator."""
    pad: NonEmptyText | None = None
    """Special token of a loaded tokenizer for padding; null: found by its usual names."""
    ends: tuple[TokenId, ...] = Field((), max_length=64)
    """Ids of a loaded tokenizer that end a generated text, beside the separator; []: its usual end of text."""
    forced_bos: TokenId | None = None
    """Id of a loaded tokenizer that every target of a pair begins with (transformers: forced_bos_token_id)."""

    @classmethod
    def _read(cls, section: Any) -> Any:
        """A kind alone stands for its mapping, as for sections of kinds."""
        is_kind = isinstance(section, str) and section in listing("data.tokenizers")
        return super()._read({"kind": section} if is_kind else section)

    def argument(self, path: str) -> str:
        """The argument that loads the tokenizer in a folder with the special tokens of these settings."""
        roles = {key: name for key in ("separator", "begin", "pad") if (name := getattr(self, key)) is not None}
        listed = "".join(f", {key}: {json.dumps(name, ensure_ascii=False)}" for key, name in roles.items())
        return shlex.quote(f"tokenizer={{path: {path}{listed}}}" if roles else f"tokenizer.path={path}")

    @property
    def trainer(self) -> TokenizerSettings:
        """The settings of the kind, which train it."""
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
            yield "path", "last changes with every run; give a run folder or its name in outputs"
        for key in (*ROLES, "extend"):
            if getattr(self, key) not in (None, ()) and self.path is None:
                yield Rule(key, "is for a loaded tokenizer; give tokenizer.path, or remove it", ("path",))
        if self.path is None and self.vocab_size < (least := self.trainer.MIN_VOCAB_SIZE)[0]:
            yield Rule("vocab_size", f"{self.vocab_size} {least[1]}", ("kind", "path"))


class Tokenizer(SingleTokenizer):
    source: SingleTokenizer | None = None
    """Separate tokenizer for the source of an encoder-decoder; null: the same for source and target."""


HORIZONS = ("steps", "tokens", "epochs", "time")
"""The keys of `train` for the length of the run; exactly one must be given."""
BATCHES = ("batch_size", "batch_tokens")
"""The keys of `train` for the batch size; in a later level either one replaces both."""


class Train(Section):
    steps: Count | None = None
    """Length of the run in optimizer steps."""
    tokens: Count | None = None
    """Length of the run in training tokens."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Length of the run in epochs."""
    time: Seconds | None = None
    """Length of the run in training time, such as 30m."""
    words: Count | None = None
    """Largest number of words of the training text, as BabyLM's 10M; a text with more is refused."""
    batch_size: int = Field(32, ge=1, le=2**20)
    """Sequences per optimizer step, over all micro-batches and processes."""
    batch_tokens: Annotated[int, Field(ge=1, le=2**30)] | None = None
    """Instead of batch_size: tokens per step with padding, in rows of similar length (pairs: per source and target)."""
    micro_batch_size: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Sequences per forward pass. Changes memory and speed, not the result; may differ when a run is continued."""
    context: int = Field(128, ge=1, le=2**20)
    """Context length in tokens."""
    stream: bool = False
    """Each row continues that of the previous step, and the model's state is carried over."""
    freeze: tuple[NonEmptyText, ...] = Field((), max_length=1024)
    """Parameters to freeze, by name patterns: [embedding.*, stack.layers.0.*]; see `minitf inspect model`."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Random seed of the run."""
    seeds: int = Field(1, ge=1, le=1000)
    """Number of runs with seed, seed + 1, ..., in subfolders seed-1, seed-2, ...; the model is the median run's."""
    ensemble: Literal["mean"] | None = None
    """mean: predict and evaluate average the class probabilities (numbers) of the models of all seeds or folds."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """At a non-finite loss or gradient: end the run before the step (exit code 7), or skip and count the step."""
    most_skips: int = Field(10, ge=1, le=10**6)
    """Maximum number of consecutive steps skipped by on_nonfinite: skip before the run ends."""
    stop_above: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Training loss above which the run ends as diverged (exit code 7)."""

    @classmethod
    def inherited(cls, below: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
        replaced = {key for group in (HORIZONS, BATCHES) if keys & {*group} for key in group}
        return {key: node for key, node in below.items() if key not in replaced}

    def rules(self) -> Rules:
        horizons = [name for name in HORIZONS if getattr(self, name) is not None]
        if not horizons:
            message = f"must set the length of the run: one of {', '.join(HORIZONS)}, such as steps: 2000"
            yield Rule("", message, HORIZONS)
        elif len(horizons) > 1:
            yield horizons[1], f"{' and '.join(horizons)} are given; keep exactly one of {', '.join(HORIZONS)}"
        if self.micro_batch_size != "auto" and self.batch_tokens is None and self.batch_size % self.micro_batch_size:
            divisors = (d for d in range(1, self.batch_size + 1) if self.batch_size % d == 0)
            nearest = min(divisors, key=lambda d: abs(d - int(self.micro_batch_size)))
            message = f"{self.micro_batch_size} does not divide batch_size {self.batch_size}; use {nearest}"
            yield Rule("micro_batch_size", message, BATCHES)
        if self.batch_tokens is not None and self.batch_tokens < self.context:
            yield Rule(
                "batch_tokens",
                f"{self.batch_tokens} tokens cannot hold a row of context {self.context}; use at least {self.context}",
                ("context",),
            )
        if self.seed + self.seeds > 2**63:
            message = f"the last of {self.seeds} seeds from {self.seed} is too large; use a smaller seed"
            yield Rule("seeds", message, ("seed",))
        if self.batch_tokens is not None and self.stream:
            yield Rule("batch_tokens", "rows of a stream all have the same length; use batch_size", ("stream",))

    @property
    def known_steps(self) -> int | None:
        """Steps of the run, if the recipe says them without the data."""
        return self.steps or (self.tokens and self.tokens // self.step_tokens)

    @property
    def step_tokens(self) -> int:
        """Maximum tokens per step (of pairs: of source and of target each)."""
        return self.batch_tokens or self.batch_size * self.context


class Adapter(Section):
    kind: Literal["lora"] = "lora"
    """lora: a trainable low-rank matrix is added to each frozen matrix (Hu et al. 2021, arXiv:2106.09685)."""
    rank: int = Field(8, ge=1, le=4096)
    """Rank of the added matrices."""
    alpha: float = Field(16.0, gt=0, le=1e6)
    """The added matrices are multiplied by alpha / rank."""
    targets: Annotated[tuple[NonEmptyText, ...], Field(min_length=1, max_length=1024)] | None = None
    """Matrices to adapt, by name patterns; null: those of all layers."""
    merge: bool = False
    """Merge the adapter into the matrices of model.safetensors; checkpoints keep it separate."""

    @classmethod
    def _read(cls, section: Any) -> Any:
        if isinstance(section, str) and section == "lora":
            raise invalid("must be a mapping such as {kind: lora}, got 'lora'")
        return super()._read(section)


class Eval(Section):
    every_steps: Count | Literal["auto"] | None = "auto"
    """Steps between evaluations; auto: ten per run, fewer in a run of seconds; null: only one, after the last step."""
    tokens: Count | Literal["auto"] | None = "auto"
    """Validation tokens per evaluation; auto: few enough to cost little; null: all. The last evaluation uses all."""
    translations: int = Field(64, ge=0, le=10**6)
    """Validation texts generated per evaluation for BLEU, chrF and ROUGE; 0 = none. The last evaluation uses all."""
    best: NonEmptyText = "loss"
    """Metric that selects the best checkpoint (model.safetensors): loss, main (main metric of the task), or a name."""
    patience: Count | None = None
    """Early stopping: end after this many evaluations without a better value of `best`."""
    until: NonEmptyText | None = None
    """End with the first evaluation that meets this bound, such as val.loss<=1.88, and publish its weights."""
    baseline: bool = True
    """At the end, measure cheap methods on the same data, such as TF-IDF or an n-gram model, in seconds."""


class Checkpoint(Section):
    every_steps: Count | Literal["auto"] = "auto"
    """Steps between checkpoints; auto: at each evaluation."""
    at_words: Annotated[tuple[Count, ...], Field(max_length=1000)] = ()
    """Words of training text after each of which a checkpoint is saved and kept: [1M, 2M, 5M]."""
    keep_last: int = Field(2, ge=1, le=10_000)
    """Number of latest checkpoints to keep."""
    keep_best: int = Field(1, ge=0, le=10_000)
    """Number of checkpoints with the best validation metric (eval.best) to keep as well."""
    resume: Literal["auto", "exact"] = "auto"
    """If a changed machine or software may change results bitwise: auto warns and resumes, exact refuses to."""


class Log(Section):
    every_steps: Count = 10
    """Steps between progress lines."""
    samples: int = Field(1, ge=0, le=100)
    """Samples generated at each evaluation; 0 = none."""


class Runtime(Section):
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of the forward pass; parameters and optimizer states are fp32. auto: bf16 if measured to be faster."""
    compile: Literal["auto"] | bool = "auto"
    """Use torch.compile; auto: tried if the run is long enough to make up for compilation."""
    graphs: Literal["auto"] | bool = "auto"
    """Capture steps of training and generation in CUDA graphs, to save host time; auto: on NVIDIA GPUs, if possible."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """CPU threads of a process; auto: its share of the available cores, or fewer if measured to be faster."""
    reduce: Literal["sum", "tree", "overlap"] = "sum"
    """Sum of gradients over processes; tree: equal to the bit for 1, 2, 4, ...; overlap: during the backward pass."""
    shard: Literal["none", "optimizer", "full"] = "none"
    """What processes divide: nothing, the optimizer state (ZeRO stage 1), or weights and gradients, too (FSDP)."""
    timeout: Seconds = 600.0
    """Longest wait for another process in one step, after which the run ends and can be continued."""

    @classmethod
    def on(cls, device: str) -> "Runtime":
        """For inference on the device of an option; UsageFault if no device has such a name."""
        try:
            return cls(device=device, compile=False)
        except ValidationError as error:
            raise UsageFault(f"--device {device!r}: must be auto, cpu, cuda, cuda:N or mps") from error

    def rules(self) -> Rules:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?|mps", self.device):
            yield "device", f"must be auto, cpu, cuda, cuda:N or mps, got {show(self.device)}"
        if self.shard == "full" and self.reduce != "sum":
            yield "reduce", f"{self.reduce} needs whole gradients, which no process has with shard: full; use sum"
        if self.shard == "full" and self.compile is True:
            yield "compile", "true does not work with shard: full; use auto"


class Generate(Section):
    prompt: str = ""
    """Prompt of the samples."""
    max_new_tokens: int = Field(200, ge=1, le=10**6)
    """Maximum number of generated tokens."""
    temperature: float = Field(0.8, ge=0, le=100)
    """Sampling temperature; 0: greedy decoding."""
    top_k: Annotated[int, Field(ge=0, le=10**12)] | None = 50
    """Sample from the top_k most probable tokens; 0 or null: from all."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: from the most probable tokens whose probabilities sum to top_p; 1: from all."""
    min_p: Share = 0.0
    """Sample from tokens with at least min_p times the highest probability; 0: from all."""
    repetition_penalty: float = Field(1.0, ge=0.01, le=100)
    """Above 1: tokens that already occur become less probable; 1: no penalty."""
    num_beams: int = Field(4, ge=1, le=1024)
    """encoder_decoder: beam size; 1: greedy decoding."""
    length_penalty: float = Field(0.6, ge=-10, le=10)
    """encoder_decoder: beams are scored by log-probability / ((5 + length) / 6)^length_penalty; 0: not normalized."""
    min_new_tokens: int = Field(0, ge=0, le=10**6)
    """encoder_decoder: minimum number of generated tokens."""
    no_repeat_ngram: int = Field(0, ge=0, le=1000)
    """encoder_decoder: n-grams of this size occur at most once; 0: no limit."""
    stop: tuple[NonEmptyText, ...] = Field((), max_length=64)
    """Stop strings: the text ends before the first of them."""

    @property
    def greedy(self) -> bool:
        """Whether decoding is deterministic."""
        return self.temperature == 0 or self.top_k == 1

    def with_options(self, options: Mapping[str, Any]) -> "Generate":
        """Replaced by the options of `minitf generate`, by name; UsageFault for a value out of range."""
        replaced = {name: value for name, value in options.items() if name in type(self).model_fields}
        for name, value in replaced.items():
            try:
                type(self)(**{name: value})
            except ValidationError as error:
                if faults := [fault for fault in faults_of(error) if fault.type != "rule"]:
                    raise UsageFault(f"--{name.replace('_', '-')}: {faults[0].message}") from None
        return self.model_copy(update=replaced)

    def rules(self) -> Rules:
        if self.min_new_tokens > self.max_new_tokens:
            message = f"{self.min_new_tokens} is more than max_new_tokens {self.max_new_tokens}"
            yield Rule("min_new_tokens", message, ("max_new_tokens",))
