"""From a recipe to the parts of its run: data as ids, model and objective, what learns, and what is decided by tries on them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.opening import Say, open_text
from mini_tf.jobs.parts import Parts
from mini_tf.jobs.session import Reporter
from mini_tf.nn.model import Model
from mini_tf.nn.weights.lora import adapt, merged_weights
from mini_tf.nn.weights.meta_model import on_meta_device
from mini_tf.nn.weights.objective_network import trained_together
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.folder import Run
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.progress import show_progress
from mini_tf.system.seeds import seed_of
from mini_tf.trained import initial
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.trained.opening import SOURCE_TOKENIZER, read_whole, write_config
from mini_tf.training.feed import Feed
from mini_tf.training.freezing import freeze
from mini_tf.training.machine.contention import contended
from mini_tf.training.machine.device import Setup, available_cores
from mini_tf.training.machine.memory import fitting_micro_batch, refuse_too_large
from mini_tf.training.machine.step_timer import StepTimer
from mini_tf.training.machine.tuning import LONGEST, RunLength, tune
from mini_tf.training.machine.tuning_cache import remembered


def opened(recipe: Recipe, reporter: Reporter) -> TokenizedData:
    """The text as ids, with what there is to say of it."""
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, reporter.detail)
    for note in text.notes:
        reporter.say(note)
    context, tokens = recipe.train.context, len(text.train)
    if recipe.objective.dataset().STREAM and tokens <= context:  # said before anything is measured with such rows, which may take long
        fitting = 1 << max(0, tokens.bit_length() - 4)
        reporter.warn(f"train.context {context} is longer than the whole text of {tokens:,} tokens; train.context={fitting} fits it")
    return text


def published_as(recipe: Recipe) -> Callable[[dict[str, Tensor]], dict[str, Tensor]] | None:
    """What makes model.safetensors of the weights that learn, where that is another model."""
    return partial(merged_weights, settings=recipe.adapter) if recipe.adapter is not None and recipe.adapter.merge else None


def keep(parts: Parts, run: Run) -> None:
    """Write into a run's folder what its model is built with again, and what it is compared by."""
    text = parts.data
    sizes = vocabulary_sizes(text.tokenizer, text.source_tokenizer)
    run.write("config.json", write_config(parts.recipe, sizes, text.labels, parts.whole))
    run.write("tokenizer.json", text.tokenizer.to_json())
    if text.source_tokenizer is not text.tokenizer:
        run.write(SOURCE_TOKENIZER, text.source_tokenizer.to_json())
    objective = parts.recipe.objective
    pipeline = objective.pipeline()
    unit = objective.LOSS_UNIT if objective.TOKEN_LOSS is None else f"nats per {text.tokenizer.unit}"
    figures = [] if pipeline is None else [f"val.{name}" for name in pipeline.MAIN]
    run.update(parameters=sum(p.numel() for p in parts.model.parameters()), loss_unit=unit, figures=figures)


def build(recipe: Recipe, text: TokenizedData, setup: Setup, say: Say = lambda line: None, begun: Path | None = None) -> Parts:
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
    refuse_too_large(trained_together(meta, on_meta_device(lambda: objective.task(meta))), recipe.optimizer, setup.device)
    model = architecture.initialize(seed_of(recipe.train.seed, "weights"))
    if beginning is not None:
        beginning.load_into(model)
    limited(model, recipe, whole).to(setup.device)
    torch.manual_seed(seed_of(recipe.train.seed, "objective"))
    parts = Parts(recipe, text, objective, setup, model, objective.task(model).to(setup.device), taken, whole)
    return replace(parts, setup=decide(parts, say))


def learns_whole(model: Model, predicts_tokens: bool, taken: initial.LoadedTensors | None) -> list[str]:
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
    shape = {**asked, **rows, "vocabulary": parts.data.tokenizer.vocabulary.size}
    work = RunLength(parts.plan.batch_size, parts.schedule.horizon)

    cores = min(setup.threads, available_cores())  # more threads than these are contended by themselves

    def find() -> Setup:
        skips = " ".join(f"{'train' if key == 'micro_batch_size' else 'runtime'}.{key}" for key in sorted(setup.undecided))
        with show_progress(f"measuring the fastest settings, at most {LONGEST:g} s plus compilation (skipped for those given: {skips})"):
            return tune(setup, work, StepTimer(parts.task, single_rows), partial(contended, cores))

    decided = remembered(shape, work, setup, find, say)
    decided.apply()  # fewer threads may be faster
    return decided
