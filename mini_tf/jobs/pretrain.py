"""From a recipe to a run: read the text, build the model, train it; `pretrain` is the whole river."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from mini_tf.data.datasets import Text
from mini_tf.data.labels import Labels
from mini_tf.data.opening import Say, open_text, reopen
from mini_tf.jobs.cost.whole import Cost, cost_of
from mini_tf.jobs.parts import Parts
from mini_tf.jobs.session import Outcome, Session, Voice
from mini_tf.nn.model import Model
from mini_tf.nn.weights.lora import adapt, merged_weights
from mini_tf.nn.weights.objective_network import trained_together
from mini_tf.nn.weights.sketch import sketched
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.identity import Identity
from mini_tf.run.opening import Place, begin, check_exact, folder_of, open_run
from mini_tf.scores import figures_of, left_out, packages_of
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.seeds import seed_of
from mini_tf.trained import initial
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.trained.initial import listed
from mini_tf.trained.opening import SOURCE_TOKENIZER, read_whole, write_config
from mini_tf.training.feed import Feed
from mini_tf.training.freezing import freeze
from mini_tf.training.machine.device import Setup, settle
from mini_tf.training.machine.memory import fitting_micro_batch, refuse_too_large
from mini_tf.training.machine.trial import Trial
from mini_tf.training.machine.tuning import Work, tune
from mini_tf.training.machine.tuning_cache import remembered
from mini_tf.training.signals import StopRequest


@dataclass(frozen=True)
class Options:
    """What a command asks besides the recipe."""

    place: Place = field(default_factory=Place)
    extend: int | None = None
    dry_run: bool = False
    command: tuple[str, ...] = ()
    check: Callable[[Labels | None], None] = lambda labels: None
    """Refuses to begin where the run cannot give what is asked of it, once its labels are known."""


def pretrain(resolved: Resolved, options: Options, voice: Voice) -> Outcome:
    """The whole river: recipe and text in, a run folder out. The same call on an unfinished folder continues it."""
    began, recipe = time.monotonic(), resolved.recipe
    if options.dry_run:
        cost = estimate(recipe, voice)
        all_of = f"for {cost.seeds} seeds" if cost.seeds > 1 else "in all"
        voice.say(f"estimate: {cost.pace.seconds * 1000:.0f} ms a step, {cost.total / 60:.1f} minutes {all_of}; nothing was kept")
        return Outcome(None, cost.metrics)
    identity, text = identified(resolved, options.place, voice)
    options.check(text.labels)
    with open_run(options.place, identity, options.command) as run:
        if recipe.adapter is not None and recipe.adapter.merge:
            run.published_as = partial(merged_weights, settings=recipe.adapter)
        if run.status == "finished" and options.extend is None:
            run.publish(warn=voice.warn)  # puts a model.safetensors right that was lost or damaged since
            voice.say(f"already complete: {run.folder} (step {run.manifest.step}); --extend N trains on, --fresh starts over")
            return Outcome(run.folder, run.manifest.metrics)
        voice.log, voice.crash = run.log, run.crash
        if options.extend is not None:
            run.extend(options.extend)
        if run.status == "continued":
            voice.say(f"continuing {run.folder} from step {next(iter(run.checkpoints.steps()), 0)}")
        begun = run.folder if run.checkpoints.steps() else None
        parts = build(recipe, text, settle(recipe.runtime, run.manifest.auto), voice.detail, begun)
        if begun is None:
            initial.refuse_changed(recipe, identity.hashes)
        check_exact(run, parts.setup.found, recipe.checkpoint.resume == "exact", voice.warn)
        begin(run, identity)
        run.note_auto(parts.setup.record)
        run.write("config.json", write_config(recipe, vocabulary_sizes(text.tokenizer, text.source_tokenizer), text.labels, parts.whole))
        run.write("tokenizer.json", text.tokenizer.to_json())
        if text.source_tokenizer is not text.tokenizer:
            run.write(SOURCE_TOKENIZER, text.source_tokenizer.to_json())
        introduce(parts, voice)
        session = Session(run, parts, voice, began)
        with StopRequest() as stop:
            return session.finish(session.learn(stop), stop)


def identified(resolved: Resolved, place: Place, voice: Voice) -> tuple[Identity, Text]:
    """Which run a recipe means, by the contents of all that it reads; and its text.

    Where the run that it begins with is gone, the one that stands at `place` says what that was, and with which tokenizer.
    """
    begun = folder_of(place)
    begins = initial.contents(resolved.recipe, begun)  # before the text, which may take long
    text = opened(initial.with_own_tokenizer(resolved.recipe, begun), voice)
    return Identity.of(resolved, text.hashes | begins), text


def opened(recipe: Recipe, voice: Voice) -> Text:
    """The text as ids, with what there is to say of it."""
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, voice.detail)
    for note in text.notes:
        voice.say(note)
    return text


def build(recipe: Recipe, text: Text, setup: Setup, say: Say = lambda line: None, begun: Path | None = None) -> Parts:
    """Objective, model and task, whose weights depend on the seed alone; and `setup` with all that was undecided decided.

    begun: the run's own folder, where its own weights are to be loaded: then the run that it began with is not opened.
    """
    setup.apply()
    architecture = Architecture.of(recipe, text.tokenizer, text.source_tokenizer, text.labels)
    objective = architecture.objective
    if recipe.train.stream and len(text.train) < recipe.train.context + objective.lookahead:
        raise DataFault(
            f"data.train: a stream reads whole rows of {recipe.train.context} tokens, there are {len(text.train)}",
            hint="train.stream=false",
        )
    meta = architecture.on_meta()
    beginning = initial.begin(meta, recipe, text) if recipe.model.init_from is not None and begun is None else None
    taken = beginning.taken if beginning is not None else None
    whole = None
    if recipe.adapter is not None:
        whole = learns_whole(meta, recipe.objective.PREDICTS_TOKENS, taken) if begun is None else read_whole(begun)
    limited(meta, recipe, whole)
    refuse_too_large(trained_together(meta, sketched(lambda: objective.task(meta))), recipe.optimizer, setup.device)
    model = architecture.initialize(seed_of(recipe.train.seed, "weights"))
    if beginning is not None:
        beginning.load_into(model)
    limited(model, recipe, whole).to(setup.device)
    torch.manual_seed(seed_of(recipe.train.seed, "objective"))
    parts = Parts(recipe, text, objective, setup, model, objective.task(model).to(setup.device), taken, whole)
    return replace(parts, setup=decide(parts, say))


def learns_whole(model: Model, predicts_tokens: bool, taken: initial.Taken | None) -> list[str]:
    """What learns beside an adapter as it is: what is new, and the head of a task, whether new or taken over."""
    new = taken.new if taken is not None else ()
    return [name for name in model.weights() if name in new or (not predicts_tokens and name.startswith("head."))]


def limited(model: Model, recipe: Recipe, whole: Sequence[str] | None) -> Model:
    """The same model, in which only that learns which the recipe lets learn. whole: what learns as a whole beside an adapter."""
    if recipe.adapter is not None:
        adapt(model, recipe.adapter, whole or ())
    freeze(model, recipe.train.freeze)
    return model


def decide(parts: Parts, say: Say) -> Setup:
    """The setup, applied, with what the recipe leaves to this machine decided by tries on this very model and text."""
    recipe, setup, train = parts.recipe, parts.setup, parts.recipe.train
    single_rows = Feed(parts.plan, parts.train, parts.objective.prepare, 1)
    if train.micro_batch_size != "auto":
        setup = setup.decided("micro_batch_size", train.micro_batch_size, "asked for")
    elif not setup.micro_batch_size:
        size, reason = fitting_micro_batch(parts.task, single_rows, setup)
        setup = replace(setup, micro_batch_size=size, reasons=setup.reasons | {"micro_batch_size": reason})
    elif train.batch_tokens is None and train.batch_size % setup.micro_batch_size:
        recorded = str(setup.micro_batch_size)[:20]
        raise RunFault(f"run.json is damaged: auto.micro_batch_size {recorded} does not divide train.batch_size {train.batch_size}")
    if not setup.undecided:
        return setup
    asked = recipe.model_dump(mode="json", include={"model", "objective", "runtime"})
    rows = {"batch_size": parts.plan.batch_size, "context": train.context, "stream": train.stream, "pack": recipe.data.pack}
    shape = {**asked, **rows, "vocabulary": parts.text.tokenizer.vocabulary.size}
    work = Work(parts.plan.batch_size, parts.course.horizon)
    decided = remembered(shape, work, setup, lambda: tune(setup, work, Trial(parts.task, single_rows)), say)
    decided.apply()  # fewer threads may be faster
    return decided


def introduce(parts: Parts, voice: Voice) -> None:
    """Say what a person wants to know before a run: machine, model, text and the arithmetic of a batch."""
    train, text, horizon, micro = parts.recipe.train, parts.text, parts.course.horizon, parts.setup.micro_batch_size
    voice.say(parts.setup.spoken())
    parameters = sum(p.numel() for p in parts.model.parameters())
    voice.say(f"model: {parts.recipe.model.kind}, {parameters:,} parameters, vocabulary {text.tokenizer.vocabulary.size:,}")
    if own := sum(p.numel() for p in parts.trainable.parameters()) - parameters:
        voice.say(f"objective: {parts.recipe.objective.kind}, {own:,} parameters of its own, which are not part of the model")
    if parts.taken is not None:
        voice.say(parts.taken.spoken())
        for line in parts.taken.lists():
            voice.detail(line)
        if parts.taken.reads:
            voice.warn(parts.taken.reads)
    learning = sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    if learning < parameters:
        voice.say(f"learning: {learning:,} of the parameters, the others stay as they are")
    if parts.whole is not None:
        whole = [name for name, parameter in parts.model.named_parameters() if name in parts.whole and parameter.requires_grad]
        voice.say(f"as a whole, beside the adapter: {listed(whole)}" if whole else "nothing but the adapter learns")
    dataset = parts.recipe.objective.dataset()
    for line in dataset.summary(text):
        voice.say(line)
    if not parts.recipe.objective.PREDICTS_TOKENS and (lacking := left_out(*packages_of(*figures_of(parts.recipe.objective)))):
        voice.say(lacking)
    most = parts.plan.batch_size
    passes = f"{-(-most // micro)} x {micro}" if micro < most else f"{most}"
    rows = f"at most {passes} rows of like length" if train.batch_tokens else f"{passes} rows of {train.context}"
    if horizon.steps is None:
        how_long = f"{horizon.seconds:g} seconds"
    else:
        how_long = f"{horizon.steps:,} steps, {horizon.steps / parts.plan.epoch_steps:.2g} epochs"
    voice.say(f"training: {how_long}, {train.step_tokens:,} tokens a step ({rows})")
    if dataset.CUTS and (cut := parts.train.n_longer):
        voice.warn(f"{cut:,} of {text.train.n_documents:,} {dataset.UNIT} are longer than train.context {train.context} and are cut there")
    if parts.train.n_rows < most:
        voice.warn(f"the text fills {parts.train.n_rows} rows, fewer than the {most} of one step; rows repeat within a step")


def estimate(recipe: Recipe, voice: Voice, seconds: float | None = None) -> Cost:
    """What a run would take, from its own beginning and `seconds` of its steps, which are then forgotten."""
    text = opened(recipe, voice)
    began = time.monotonic()
    reopen(recipe.data, text.used, recipe.objective, text.hashes)  # out of the cache, as a run will find it
    parts = build(recipe, text, settle(recipe.runtime), voice.detail)
    introduce(parts, voice)
    return cost_of(parts, time.monotonic() - began, seconds)
