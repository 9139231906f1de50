"""The schema of a recipe, once: reading, overrides, help, JSON Schema and the resolved recipe of a run all come from it."""

from typing import Any, Literal

from pydantic import Field

from mini_tf.recipe.kinds import Kind, Section

# DRAFT: types and validators to be finished in recipe/ (values of the right type, KindOf, cross rules).


class Data(Section):
    train: Any = "python-docs"
    """A built-in corpus, a path, a glob, a list of them, or {source: ..., target: ...} for pairs; - is stdin."""
    val: Any = None
    """Held-out text in the same forms; by default a part of `train` is kept (`split`)."""
    split: str = "5%"
    """The held-out share of documents, or `tail 10%`: the last part of the raw characters, without separators."""
    fields: dict[str, str] = {}
    """Columns or keys to read: {text: review}."""
    header: Literal["auto"] | bool = "auto"
    """Whether csv and tsv files name their columns in the first line."""
    pack: Literal["docs", "concat", "none"] = "concat"
    """docs: several documents a row that do not see each other; concat: they do; none: one document a row."""


class Tokenizer(Section):
    kind: Literal["char", "byte", "bpe"] = "bpe"
    """What a token is, where the tokenizer is trained here."""
    vocab_size: int = 4096
    """Number of tokens, special ones included; char and byte find their own."""
    path: str | None = None
    """A tokenizer.json or a run to take the tokenizer from, instead of training one."""


class Optimizer(Section):
    kind: Literal["adamw"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    """Applied to matrices, not to vectors (norms, biases) nor to embeddings."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0 = no clipping."""


class Schedule(Section):
    kind: Literal["constant", "linear", "cosine", "wsd", "inverse_sqrt"] = "cosine"
    warmup: int | float = 0.02
    """Steps (an int), or a share of the horizon (a float below 1; written 5%)."""
    decay: float = 0.3
    """wsd: share of the horizon over which the rate falls."""
    floor: float = 0.0
    """Rate at the end, as a share of lr."""


class Train(Section):
    steps: int | None = None
    tokens: int | None = None
    epochs: float | None = None
    time: float | None = None
    """Seconds; written 30m."""
    batch_size: int = 32
    """Sequences an optimizer step, over all micro-batches and processes."""
    batch_tokens: int | None = None
    """Tokens an optimizer step instead of sequences; rows are bucketed by length."""
    micro_batch_size: int | Literal["auto"] = "auto"
    """Sequences a forward pass; changes memory and speed, never the result."""
    context: int = 128
    """Length of a row in tokens."""
    stream: bool = False
    """Rows continue from step to step and the model's state is carried along."""
    seed: int = 0


class Eval(Section):
    every_steps: int | Literal["auto"] = "auto"
    """auto: ten times a run."""
    tokens: int | None = None
    """At most so many tokens of the held-out text while training (the first ones); the last evaluation takes all."""
    patience: int | None = None
    """Stop after so many evaluations without a better loss."""


class Checkpoint(Section):
    every_steps: int | Literal["auto"] = "auto"
    """auto: as often as evaluation."""
    keep_last: int = 2
    keep_best: int = 1
    resume: Literal["auto", "exact"] = "auto"
    """exact: refuse to continue where the result could differ in a bit."""


class Log(Section):
    every_steps: int = 10
    samples: int = 1
    """Texts sampled at each evaluation point; 0 = none."""


class Runtime(Section):
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto"] | bool = "auto"
    threads: int | Literal["auto"] = "auto"


class Generate(Section):
    prompt: str = ""
    max_new_tokens: int = 200
    temperature: float = 0.8
    top_k: int | None = 50


class Recipe(Section):
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    model: Kind = Field()
    objective: Kind = Field()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    train: Train = Train()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    log: Log = Log()
    runtime: Runtime = Runtime()
    generate: Generate = Generate()
    expect: dict[str, str] = {}
    """Gates that the shipped recipe is held to with --expect: {val.loss: "<1.9"}."""
