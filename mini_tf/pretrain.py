"""From a recipe to a run: read the text, build the model, train it; `pretrain` is the whole river."""

import time
from dataclasses import dataclass, field
from itertools import islice

import torch

from mini_tf.errors import DataFault
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.identity import Identity
from mini_tf.run.opening import Place, check_exact, open_run
from mini_tf.run.trained import write_config
from mini_tf.seeds import seed_of
from mini_tf.session import Outcome, Parts, Session, Voice
from mini_tf.text.token_store import Text, open_text
from mini_tf.training.device import Setup, settle
from mini_tf.training.feed import Feed
from mini_tf.training.loop import Training, train
from mini_tf.training.memory import fitting_micro_batch
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.plan import Plan
from mini_tf.training.signals import StopRequest

ESTIMATE_STEPS = 4
"""Steps that a dry run times; the first warms up."""


@dataclass(frozen=True)
class Options:
    """What a command asks besides the recipe."""

    place: Place = field(default_factory=Place)
    extend: int | None = None
    dry_run: bool = False
    command: tuple[str, ...] = ()


def pretrain(resolved: Resolved, options: Options, voice: Voice) -> Outcome:
    """The whole river: recipe and text in, a run folder out. The same call on an unfinished folder continues it."""
    began, recipe = time.monotonic(), resolved.recipe
    text = open_text(recipe.data, recipe.tokenizer, voice.detail, recipe.objective.TOKENS)
    for note in text.notes:
        voice.say(note)
    if options.dry_run:
        return estimate(build(recipe, text, settle(recipe.runtime)), voice)
    with open_run(options.place, Identity.of(resolved, text.hashes), options.command) as run:
        if run.status == "finished" and options.extend is None:
            run.publish()  # puts a model.safetensors right that was lost or damaged since
            voice.say(f"already complete: {run.folder} (step {run.manifest.step}); --extend N trains on, --fresh starts over")
            return Outcome(run.folder, run.manifest.metrics)
        voice.log = run.log
        if options.extend is not None:
            run.extend(options.extend)
        if run.status == "continued":
            voice.say(f"continuing {run.folder} from step {run.manifest.step}")
        parts = build(recipe, text, settle(recipe.runtime, run.manifest.auto))
        micro = run.manifest.auto.get("micro_batch_size") if recipe.train.micro_batch_size == "auto" else None
        micro = micro or micro_batch_of(parts)
        found = {**parts.setup.found, "micro_batch_size": micro}
        check_exact(run, found, recipe.checkpoint.resume == "exact", voice.warn)
        run.note_auto(found)
        run.write("config.json", write_config(recipe, text.tokenizer.vocabulary.size))
        run.write("tokenizer.json", text.tokenizer.to_json())
        introduce(parts, micro, voice)
        session = Session(run, parts, voice, micro, began)
        with StopRequest() as stop:
            return session.finish(session.learn(stop), stop)


def build(recipe: Recipe, text: Text, setup: Setup) -> Parts:
    """Objective, model and task; the weights depend on the seed alone."""
    setup.apply()
    vocabulary = text.tokenizer.vocabulary
    objective = recipe.objective.build(vocabulary)
    if recipe.train.stream and len(text.train) < recipe.train.context + objective.lookahead:
        raise DataFault(
            f"data.train: a stream reads whole rows of {recipe.train.context} tokens, there are {len(text.train)}",
            hint="train.stream=false",
        )
    torch.manual_seed(seed_of(recipe.train.seed, "weights"))
    model = recipe.model.build(vocabulary.size, recipe.train.context)
    model.to(setup.device)
    return Parts(recipe, text, objective, setup, model, objective.task(model))


def micro_batch_of(parts: Parts) -> int:
    """Rows a forward pass: as the recipe says, or the most that fit into memory, as one measured row tells."""
    train = parts.recipe.train
    if train.micro_batch_size != "auto":
        return train.micro_batch_size
    plan = Plan(parts.train.n_rows, train.batch_size, train.seed)
    parts.task.train()
    return fitting_micro_batch(parts.task, Feed(plan, parts.train, parts.objective.prepare, 1), parts.setup)[0]


def introduce(parts: Parts, micro: int, voice: Voice) -> None:
    """Say what a person wants to know before a run: machine, model, text and the arithmetic of a batch."""
    setup, train, text, horizon = parts.setup, parts.recipe.train, parts.text, parts.course.horizon
    voice.say(
        f"device {setup.device} ({setup.reasons['device']}), {setup.precision} ({setup.reasons['precision']}), "
        f"compile {'on' if setup.compile else 'off'} ({setup.reasons['compile']}), {setup.threads} thread{'s' if setup.threads > 1 else ''}"
    )
    parameters = sum(p.numel() for p in parts.model.parameters())
    voice.say(f"model: {parts.recipe.model.kind}, {parameters:,} parameters, vocabulary {text.tokenizer.vocabulary.size:,}")
    voice.say(f"text: {len(text.train):,} tokens to learn from, {len(text.val):,} held out")
    passes = f"{train.batch_size // micro} x {micro}" if micro != train.batch_size else f"{micro}"
    if horizon.steps is None:
        how_long = f"{horizon.seconds:g} seconds"
    else:
        how_long = f"{horizon.steps:,} steps, {horizon.steps * train.batch_size / parts.train.n_rows:.2g} epochs"
    voice.say(f"training: {how_long}, {train.batch_size * train.context:,} tokens a step ({passes} rows of {train.context})")
    if parts.train.n_rows < train.batch_size:
        voice.warn(f"the text fills {parts.train.n_rows} rows, fewer than the {train.batch_size} of one step; rows repeat within a step")


def estimate(parts: Parts, voice: Voice) -> Outcome:
    """What a run would take, from a few steps that are then forgotten."""
    micro = micro_batch_of(parts)
    introduce(parts, micro, voice)
    recipe, horizon = parts.recipe, parts.course.horizon
    plan = Plan(parts.train.n_rows, recipe.train.batch_size, recipe.train.seed, recipe.train.stream)
    feed = Feed(plan, parts.train, parts.objective.prepare, micro)
    training = Training(parts.task, feed, build_optimizer(recipe.optimizer, parts.model), parts.course, parts.setup, recipe.train.seed)
    seconds = [report.seconds for report in islice(train(training), ESTIMATE_STEPS)]
    step = (seconds[-1] - seconds[0]) / max(1, len(seconds) - 1) if len(seconds) > 1 else seconds[0]
    parameters = sum(p.numel() for p in parts.model.parameters())
    steps = horizon.steps or int((horizon.seconds or 0.0) / step)
    metrics = {"parameters": parameters, "steps": steps, "seconds_per_step": step, "minutes": step * steps / 60}
    voice.say(f"estimate: {step * 1000:.0f} ms a step, {step * steps / 60:.1f} minutes of training, evaluations apart; nothing was kept")
    return Outcome(None, {name: float(value) for name, value in metrics.items()})
