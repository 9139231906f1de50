"""Which run a command is, its data, and the parts of that run: model, objective, trainable parameters, setup."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.tokenized import Report, open_data
from mini_tf.jobs import initial
from mini_tf.jobs.messages import Reporter
from mini_tf.jobs.parts import Parts
from mini_tf.nn.lora import adapt, merged_weights
from mini_tf.nn.model import Model
from mini_tf.nn.objective_network import trained_module
from mini_tf.nn.weights import on_meta_device
from mini_tf.parallel.dividing import ALONE
from mini_tf.parallel.full_sharding import sharding_of
from mini_tf.parallel.group import ProcessGroup, refuse_different
from mini_tf.parallel.reduction import REDUCTIONS
from mini_tf.recipe.metrics import BestMetric, best_metric
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.identity import Identity
from mini_tf.run.location import RunLocation, explicit_folder, versions
from mini_tf.scores import packages_of, require
from mini_tf.system.errors import DataFault, RecipeFault, RunFault
from mini_tf.system.processes import is_trial
from mini_tf.system.progress import show_progress
from mini_tf.system.seeds import seed_of
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import read_fully_trainable
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup, available_cores
from mini_tf.training.machine.graph_choice import decide_graphs
from mini_tf.training.machine.hardware import bf16_gain, contended
from mini_tf.training.machine.malloc import return_freed_memory
from mini_tf.training.machine.memory import fitting_micro_batch, refuse_too_large
from mini_tf.training.machine.trial_passes import StepTimer, compile_failure, without_failing_compiler
from mini_tf.training.machine.tuning import LONGEST, RunLength, tune
from mini_tf.training.machine.tuning_cache import cached_tuning
from mini_tf.training.optimizer import freeze


@dataclass(frozen=True)
class Options:
    """Options of a training command beside the recipe."""

    location: RunLocation = field(default_factory=RunLocation)
    extend: int | None = None
    command: tuple[str, ...] = ()
    tensorboard: bool = False
    check: Callable[[TokenizedData], None] = lambda data: None
    """Raises before training if the data do not fit the command."""
    group: ProcessGroup = field(default_factory=ProcessGroup)
    """The processes that train together."""
    stop_at: int | None = None
    """The step after which training stops, saved and to be continued."""


def identify(resolved: Resolved, options: Options, reporter: Reporter) -> tuple[Identity, TokenizedData]:
    """The identity of a recipe's run, by the contents of all files that it reads, and its tokenized data.

    If the run of model.init_from no longer exists, its hash and tokenizers are read from the run at the location of the
    options. Several processes prepare the data together.
    """
    REDUCTIONS[resolved.recipe.runtime.reduce].refuse(options.group)
    folder = explicit_folder(options.location)
    init = initial.init_hash(resolved.recipe, folder)  # before the data, which may take long to read
    data = load_data(initial.with_own_tokenizer(resolved.recipe, folder), reporter, options.group)
    identity = Identity.of(resolved, data.hashes | init)
    same = {"recipe": [identity.decides, identity.recipe], "data": identity.hashes, "software": versions()}
    refuse_different(options.group, same)
    return identity, data


def load_data(recipe: Recipe, reporter: Reporter, group: ProcessGroup = ALONE.group) -> TokenizedData:
    """The tokenized data, opened by all processes of a group; prints notes on them."""
    data = open_data(recipe.data, recipe.tokenizer, recipe.objective, reporter.detail, group=group)
    for note in data.notes:
        reporter.say(note)
    if recipe.train.words is not None and data.train.words > recipe.train.words:
        fault = f"data.train: {data.train.words:,} words of training text, more than train.words {recipe.train.words:,}"
        raise DataFault(fault, hint="give less text, or raise train.words")
    context, tokens = recipe.train.context, data.train.n_tokens
    if recipe.objective.dataset().STREAM and tokens <= context:  # before measurements, which take long with such rows
        fits = f"train.context={1 << max(0, tokens.bit_length() - 4)} fits"
        reporter.warn(f"train.context {context} is longer than the training data of {tokens:,} tokens; {fits}")
    return data


def usable_best_metric(recipe: Recipe, labels: Labels | None) -> BestMetric:
    """The metric of `eval.best`. RecipeFault if there is none of that name, Unavailable if its package is missing."""
    best = best_metric(recipe.objective, recipe.eval, None if labels is None else labels.names)
    require(*packages_of(recipe.objective.pipeline(), [best.name]))
    return best


def merge_function(recipe: Recipe) -> Callable[[dict[str, Tensor]], dict[str, Tensor]] | None:
    """Merges the adapter into the weights for model.safetensors; None without an adapter or without adapter.merge."""
    adapter = recipe.adapter
    return partial(merged_weights, settings=adapter) if adapter is not None and adapter.merge else None


def build(
    recipe: Recipe,
    data: TokenizedData,
    setup: Setup,
    say: Report = lambda line: None,
    resumed: Path | None = None,
    group: ProcessGroup | None = None,
) -> Parts:
    """Build objective, model and task, initialized from the seed alone, and complete `setup` by measurements.

    resumed: the folder of a run to continue, whose checkpoint is loaded later; model.init_from is then not read. group:
    the processes that train it, with the weights of rank 0.
    """
    setup.apply()
    setup.make_deterministic()
    architecture = Architecture.of(recipe, data.tokenizer, data.source_tokenizer, data.labels)
    objective = architecture.objective
    if recipe.train.stream and len(data.train) < recipe.train.context + objective.lookahead:
        needs = f"train.stream needs whole rows of {recipe.train.context} tokens, there are {len(data.train)}"
        raise DataFault(f"data.train: {needs}", hint="train.stream=false")
    objective.teacher = initial.load_teacher(recipe, data, setup.device)
    meta, sharding = architecture.on_meta(), sharding_of(recipe.runtime.shard, group or ProcessGroup())
    initialization = loaded = full = None
    if recipe.model.init_from is not None and resumed is None:
        initialization = initial.match_tensors(meta, recipe, data)
        loaded = initialization.report
    if recipe.adapter is not None and resumed is None:
        full = fully_trainable(meta, "tokens" in recipe.objective.PREDICTS, loaded)
    elif recipe.adapter is not None and resumed is not None:
        full = read_fully_trainable(resumed)
    restrict_trainable(meta, recipe, full)
    meta_task = on_meta_device(lambda: objective.task(meta))
    refuse_too_large(trained_module(meta, meta_task), recipe.optimizer, setup.device, sharding)
    model = architecture.initialize(seed_of(recipe.train.seed, "weights"))
    if initialization is not None:
        initialization.load_into(model)
    restrict_trainable(model, recipe, full)
    torch.manual_seed(seed_of(recipe.train.seed, "objective"))
    task = objective.task(model)
    if resumed is None:
        objective.fit(task, data.train)
    parts = Parts(recipe, data, objective, setup, model, task, meta_task, loaded, full, sharding)
    for tensor in (*task.parameters(), *task.buffers()):
        parts.group.broadcast(tensor.data)  # other processors may draw other last bits
    parts.sharding.place(task, setup.device)
    parts = replace(parts, setup=setup_of_all(parts, say))
    return replace(parts, setup=setup_that_compiles(parts))


def fully_trainable(model: Model, predicts_tokens: bool, loaded: initial.LoadedTensors | None) -> list[str]:
    """The parameters trained directly, beside an adapter: new ones, and the head of a task even if it was loaded."""
    new = loaded.new if loaded is not None else ()
    return [name for name in model.weights() if name in new or (not predicts_tokens and name.startswith("head."))]


def restrict_trainable(model: Model, recipe: Recipe, full: Sequence[str] | None) -> Model:
    """Add the recipe's adapter and freeze parameters, in place. full: parameters trained directly, beside it."""
    if recipe.adapter is not None:
        adapt(model, recipe.adapter, full or ())
    freeze(model, recipe.train.freeze)
    return model


def setup_of_all(parts: Parts, say: Report) -> Setup:
    """The setup that rank 0 decides on, applied, on every process; each has its own device.

    Raises RecipeFault if a step has fewer micro-batches than processes.
    """
    group, setup = parts.group, decide_graphs(parts.setup, parts.recipe, parts.group.world_size)
    parts = replace(parts, setup=setup)
    if group.world_size == 1:
        return decide_setup(parts, say)
    local = {"device": setup.device, "undecided": frozenset()}
    decided, reasons = group.on_rank_0(lambda: [(setup_ := decide_setup(parts, say)).settings, setup_.reasons])
    setup = replace(setup, **{**decided, **local}, reasons=reasons)
    batch_size, rows = parts.plan.batch_size, setup.micro_batch_size
    most, processes = group.largest_micro_batch(batch_size, parts.plan.even), group.several("{n} processes")
    if rows > most:
        if parts.recipe.train.micro_batch_size != "auto" or not most:
            fault = f"micro-batches of {rows} of {batch_size} rows are fewer than the {processes}"
            hint = f"train.micro_batch_size={most}" if most else "fewer processes or a larger train.batch_size"
            raise RecipeFault(f"train.micro_batch_size: {fault}", hint=hint)
        setup = setup.decided("micro_batch_size", most, f"{batch_size} rows for {processes}")
    setup.apply()
    if parts.sharding.divides_weights:
        return_freed_memory()
    return setup


def setup_that_compiles(parts: Parts) -> Setup:
    """The setup, not compiled if torch.compile fails on any process; Unavailable if the recipe demands it."""
    setup = parts.setup
    if not setup.compile:
        return setup
    feed = Feed(parts.plan, parts.train, parts.prepare, setup.micro_batch_size)
    with show_progress("compiling the model"):
        reasons = parts.group.all_gather(compile_failure(parts.task, feed, setup))
    return without_failing_compiler(setup, next(filter(None, reasons), None))


def decide_setup(parts: Parts, say: Report) -> Setup:
    """The setup, applied; settings that the recipe leaves open are measured with this model and these data."""
    recipe, setup, train = parts.recipe, parts.setup, parts.recipe.train
    single_rows = Feed(parts.plan, parts.train, parts.objective.prepare, 1)
    if train.micro_batch_size != "auto":
        setup = setup.decided("micro_batch_size", train.micro_batch_size, "set in the recipe")
    elif not setup.micro_batch_size:
        size, reason = fitting_micro_batch(parts.task, single_rows, setup, parts.group)
        setup = replace(setup, micro_batch_size=size, reasons=setup.reasons | {"micro_batch_size": reason})
    elif train.batch_tokens is None and train.batch_size % setup.micro_batch_size:
        fault = f"auto.micro_batch_size {str(setup.micro_batch_size)[:20]} does not divide train.batch_size"
        raise RunFault(f"run.json is damaged: {fault} {train.batch_size}")
    # Rank 0 cannot measure steps alone, nor a trial of a sweep, beside others with which it is compared.
    if not setup.undecided or parts.sharding.divides_weights or is_trial():
        return replace(setup, undecided=frozenset())
    shape = recipe.model_dump(mode="json", include={"model", "objective", "runtime"})
    shape |= {"batch_size": parts.plan.batch_size, "context": train.context, "stream": train.stream}
    shape |= {"pack": recipe.data.pack, "vocabulary": parts.data.tokenizer.vocabulary.size}
    work = RunLength(parts.plan.batch_size, parts.schedule.horizon)
    cores = min(setup.threads, available_cores())  # more threads than cores contend with each other

    def find() -> Setup:
        keys = (f"{'train' if key == 'micro_batch_size' else 'runtime'}.{key}" for key in sorted(setup.undecided))
        most = f"at most {LONGEST:g} s plus compilation (skipped for those given: {' '.join(keys)})"
        with show_progress(f"measuring the fastest settings, {most}"):
            return tune(setup, work, StepTimer(parts.task, single_rows), partial(contended, cores), bf16_gain)

    decided = cached_tuning(shape, work, setup, find, say)
    decided.apply()  # fewer threads may be faster
    return decided
