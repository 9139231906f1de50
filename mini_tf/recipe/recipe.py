"""The complete recipe: all sections, and the rules between them. Keys of these rules are dotted."""

from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny

from mini_tf.recipe.dataset_rules import dataset_rules, mixture_rules, streaming_rules
from mini_tf.recipe.kind_settings import Direction, ModelSettings, OptimizerSettings, ScheduleSettings, directions_of
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import Kind, KindOf, Rule, Rules, Section, default_kind, kinds_of, usable_settings
from mini_tf.recipe.metrics import Gate, best_rules, until_rules
from mini_tf.recipe.sections import Adapter, Checkpoint, Data, Eval, Generate, Log, Runtime, Tokenizer, Train
from mini_tf.recipe.values import show
from mini_tf.system.errors import UsageFault


class Recipe(Section):
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer.model_construct()  # its rules would import the kind
    model: Annotated[SerializeAsAny[ModelSettings], KindOf("models")]
    """Model architecture: decoder (causal attention), encoder (bidirectional attention) or encoder_decoder."""
    objective: Annotated[SerializeAsAny[ObjectiveSettings], KindOf("objectives")]
    """Training objective; default: that of the model, such as next_token for a decoder."""
    adapter: Adapter | None = None
    """Adapter that is trained instead of the model's own matrices; null: none."""
    optimizer: Annotated[SerializeAsAny[OptimizerSettings], KindOf("optimizers")] = Field(
        default_factory=default_kind("optimizers", "adamw")
    )
    """Optimizer."""
    schedule: Annotated[SerializeAsAny[ScheduleSettings], KindOf("schedules")] = Field(
        default_factory=default_kind("schedules", "cosine")
    )
    """Learning rate schedule after the warmup."""
    train: Train
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    log: Log = Log()
    runtime: Runtime = Runtime()
    generate: Generate = Generate()
    expect: dict[str, str] = {}
    """Bounds on metrics that --expect checks: {val.loss: "<1.9"}."""

    @classmethod
    def _read(cls, section: Any) -> Any:
        """Also fills in the model's default objective."""
        data = super()._read(section)
        if not isinstance(data, dict):
            return data
        objective, model = data.get("objective") or {}, data.get("model")
        if isinstance(objective, dict) and "kind" not in objective:
            word = default_objective(model)
            if word is not None:
                data["objective"] = {"kind": word} | objective
            elif not isinstance(model, Kind):
                data["objective"] = Kind()  # the model is invalid and reported; the objective cannot be checked
        return data

    def rules(self) -> Rules:
        return _rules(self)


def default_objective(model: Any) -> str | None:
    """The default objective of a model given as a name, a mapping or a Kind; None if it is unknown."""
    word = model.get("kind") if isinstance(model, dict) else model
    if isinstance(model, ModelSettings):
        return model.OBJECTIVE
    settings: Any = usable_settings("models", word) if isinstance(word, str) else None
    return None if settings is None else settings.OBJECTIVE


def _rules(recipe: Recipe) -> Rules:
    yield from _attention(recipe)
    schedule, train = recipe.schedule, recipe.train
    yield from recipe.objective.rules_with(recipe.model, train)
    dataset = recipe.objective.dataset()
    yield from dataset_rules(recipe.data, dataset, recipe.objective.kind, recipe.tokenizer.source is not None)
    yield from streaming_rules(recipe.data, recipe.train, dataset, recipe.objective.kind)
    yield from mixture_rules(recipe.data, recipe.train)
    if (key := recipe.model.one_vocabulary_key) and recipe.tokenizer.source is not None:
        message = "needs one tokenizer for source and target; remove tokenizer.source"
        yield Rule(f"model.{key}", message, ("tokenizer.source",))
    if recipe.tokenizer.forced_bos is not None and not dataset.SOURCE:
        message = "targets of pairs begin with it, which this objective has not; use null"
        yield Rule("tokenizer.forced_bos", message, ("objective",))
    yield from _streaming(recipe)
    yield from _positions(recipe)
    yield from best_rules(recipe.objective, recipe.eval)
    yield from until_rules(recipe.objective, recipe.eval)
    yield from _ensemble(recipe)
    yield from _without_effect(recipe)
    if recipe.runtime.reduce == "tree" and train.micro_batch_size == "auto":
        size = max(1, (train.batch_size if train.batch_tokens is None else 8) // 8)
        message = f"tree fixes the order of all sums, so train.micro_batch_size must be a number, such as {size}"
        yield Rule("runtime.reduce", message, ("train.micro_batch_size",))
    if recipe.runtime.shard == "full" and train.micro_batch_size == "auto":
        message = "full divides the model, so nothing is measured before training"
        way = "give train.micro_batch_size, such as 1"
        yield Rule("runtime.shard", f"{message}; {way}", ("train.micro_batch_size",))
    if recipe.adapter is not None and recipe.model.init_from is None:
        message = "an adapter needs a trained model; give model.init_from=RUN, or remove it"
        yield Rule("adapter", message, ("model.init_from",))
    if recipe.adapter is not None and recipe.adapter.merge and not recipe.checkpoint.keep_best:
        message = "the adapter is merged into the best checkpoint, which must be kept; use checkpoint.keep_best 1"
        yield Rule("adapter.merge", message, ("checkpoint.keep_best",))
    if recipe.train.context < (needed := dataset.MIN_TOKENS):
        message = f"{recipe.train.context} tokens cannot hold an example; use at least {needed}"
        yield Rule("train.context", message, ("objective",))
    mixing: list[Kind] = [mixer for mixer in recipe.model.all_mixers() if "packing" not in mixer.supports]
    mixing += [] if recipe.model.PACKS else [recipe.model]
    for word in _words(mixing if recipe.data.pack == "docs" else ()):
        message = f"{word} cannot separate documents within a row; use pack: none or concat"
        yield Rule("data.pack", message, ("model.attention",))
    if isinstance(schedule.warmup, int) and (steps := train.known_steps) and schedule.warmup >= steps:
        message = f"{schedule.warmup} steps are not fewer than the {steps} of the run; use fewer, or a share such as 5%"
        sizes = ("tokens", "batch_size", "batch_tokens", "context")
        yield Rule("schedule.warmup", message, () if train.steps else tuple(f"train.{size}" for size in sizes))
    for name, gate in recipe.expect.items():
        try:
            Gate.parse(f"{name}{gate}")
        except UsageFault:
            yield "expect", f"{name}: must be a comparison such as <1.9, got {show(gate)}"


def _without_effect(recipe: Recipe) -> Rules:
    """Keys that the rest of the recipe leaves unused."""
    optimizer = recipe.optimizer
    for key in () if "features" in recipe.objective.additions else _changed(optimizer, optimizer.FEATURE_KEYS):
        message = "has no effect without objective.wide, whose weights it is for; remove it, or give objective.wide={}"
        yield Rule(f"optimizer.{key}", message, ("objective",))
    if recipe.eval.patience is not None and recipe.eval.every_steps is None:
        message = (
            "counts evaluations, but there is only one, after the last step; use another eval.every_steps, or patience:"
            " null"
        )
        yield Rule("eval.patience", message, ("eval.every_steps",))


def _changed(section: Section, keys: Iterable[str]) -> list[str]:
    """Those of some keys that differ from their defaults."""
    return [key for key in keys if getattr(section, key) != type(section).model_fields[key].default]


def _ensemble(recipe: Recipe) -> Rules:
    if recipe.train.ensemble is None:
        return
    pipeline = recipe.objective.pipeline()
    if pipeline is None or not pipeline.ENSEMBLES:
        message = (
            f"predictions of {recipe.objective.kind} cannot be averaged; remove it, or use an objective that predicts"
            " labels"
        )
        yield Rule("train.ensemble", message, ("objective",))
    elif recipe.train.seeds == 1 and not recipe.data.split.is_set:
        yield Rule(
            "train.ensemble",
            "averages the predictions of several runs; use train.seeds=5, or train.ensemble=null for one",
            ("train.seeds", "data.split"),
        )


def _words(kinds: Iterable[Kind]) -> Iterable[str]:
    """The names of some kinds, each once."""
    return dict.fromkeys(kind.kind for kind in kinds)


def _attention(recipe: Recipe) -> Rules:
    model, objective = recipe.model, recipe.objective
    direction = objective.direction(model)
    if (way := model.per_token_setting) and "rows" not in objective.PREDICTS:
        message = (
            f"{objective.kind} predicts tokens, but {model.kind} with these settings has one output per row; use {way}"
        )
        yield Rule("objective", message, ("model",))
    if direction is not None:
        for word in _words(mixer for mixer in model.mixers() if direction not in mixer.supports):
            message = (
                f"{objective.kind} needs {direction} attention, which {word} does not support; use another attention"
            )
            yield Rule("objective", message, ("model.attention",))
        return
    objectives: Any = kinds_of("objectives")
    models: Any = kinds_of("models")
    fitting = [word for word, other in objectives.items() if other.direction(model)]
    fitting = [word for word in fitting if objectives[word].DATASET == objective.DATASET] or fitting
    others = [word for word, other in models.items() if objective.direction(other)]
    ways = [f"{key} {word}" for key, words in (("objective", fitting), ("model", others)) for word in words]
    way = f"; use {' or '.join(ways)}" if ways else ""
    needed = _attention_of(directions_of(objective.SUPPORTS), "source" in objective.SUPPORTS)
    directions = _attention_of(model.DIRECTIONS - {"prefix"}, model.SOURCE)
    yield "objective", f"{objective.kind} needs {needed}, but {model.kind} has {directions}{way}"


def _attention_of(directions: Collection[Direction], source: bool) -> str:
    """The kind of attention, as text: "causal or prefix attention"."""
    return f"{' or '.join(sorted(directions))} attention{' and a source' if source else ''}"


def _streaming(recipe: Recipe) -> Rules:
    if not recipe.train.stream:
        changed = dict.fromkeys(key for mixer in recipe.model.mixers() for key in _changed(mixer, mixer.STREAM_KEYS))
        for key in changed if "streaming" in recipe.objective.SUPPORTS else ():
            yield Rule(
                f"model.attention.{key}", "has no effect without a stream; use train.stream: true", ("train.stream",)
            )
        return
    for word in _words(mixer for mixer in recipe.model.mixers() if "streaming" not in mixer.supports):
        message = (
            f"attention {word} cannot carry its state over to the next step; use stream: false or another attention"
        )
        yield Rule("train.stream", message, ("model.attention",))
    dataset = recipe.objective.dataset()
    if not dataset.STREAM:
        yield Rule("train.stream", f"{dataset.UNIT} are not a stream of text; use stream: false", ("objective",))
    elif "streaming" not in recipe.objective.SUPPORTS and recipe.model.causal:
        yield Rule(
            "train.stream", f"{recipe.objective.kind} cannot be trained on a stream; use stream: false", ("objective",)
        )
    elif not recipe.model.causal:
        yield (
            "train.stream",
            f"a stream needs causal attention, but {recipe.model.kind} is bidirectional; use model decoder",
        )
    if recipe.data.pack != "concat":
        message = f"a stream continues across documents; use data.pack concat, not {recipe.data.pack}"
        yield Rule("train.stream", message, ("data.pack",))


def _positions(recipe: Recipe) -> Rules:
    context = recipe.train.context
    limits = {
        limit.key: limit for limit in recipe.model.position_limits(context)
    }  # source and target may have the same key
    for key, kind, length, _ in limits.values():
        if recipe.train.stream:
            message = f"a stream exceeds the length of {kind} positions; use rotary, alibi or sinusoidal"
            yield Rule("train.stream", message, (f"model.{key}",))
        elif length < context:
            message = f"{length} positions are fewer than the {context} tokens of train.context; use at least {context}"
            yield Rule(f"model.{key}.length", message, ("train.context",))
