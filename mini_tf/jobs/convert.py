"""Conversion of a trained model: other attention or positions, the same weights; or scaled values of memories."""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mini_tf.data.store import Store
from mini_tf.inspection._memory_layers import MemoryIndex, memory_layers, parse_memories
from mini_tf.jobs.assembling import usable_best_metric
from mini_tf.jobs.initial import LoadedTensors
from mini_tf.jobs.messages import Reporter
from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.model import Model
from mini_tf.nn.objective_network import objective_tensors
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.reading import Resolved, flat_values
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import manifest
from mini_tf.run.identity import Identity, resolve
from mini_tf.run.location import RunLocation, open_run, save_checkpoint, start_run
from mini_tf.run.tensors import CheckpointTensors
from mini_tf.system.errors import RecipeFault, UsageFault
from mini_tf.system.seeds import seed_of
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.evaluating import evaluate_trained, evaluation_data, kl_divergence
from mini_tf.trained.opening import Trained, open_trained, write_model_files

CONVERTED = ("attention", "cross_attention", "positions")
"""Settings of a model or stack that a conversion may change."""


@dataclass(frozen=True)
class Measured:
    """Metrics on the evaluated data, and the seconds of that evaluation."""

    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Conversion:
    """folder: the new run. kl: mean KL divergence of the predictions from the original's, None if it predicts no
    tokens.
    """

    folder: Path
    tensors: LoadedTensors
    before: Measured
    after: Measured
    kl: float | None


def convert(
    run: str,
    overrides: Sequence[str],
    location: RunLocation,
    reporter: Reporter,
    data: str | None = None,
    device: str = "auto",
    memories: Sequence[str] = (),
) -> Conversion:
    """Write a run with the weights of `run` and other settings of attention or positions, and compare both.

    data: to evaluate on in place of the run's validation data. memories: factors of values, as L:I=F. Raises UsageFault
    if the settings change anything else or a memory is missing, RecipeFault if they change the shape of a tensor.
    """
    trained = open_trained(run, device=device)
    factors = parse_factors(memories, trained.model, trained.folder.name)
    resolved = _resolve(trained, overrides, unchanged=bool(factors))
    store = evaluation_data(trained, data, "val", reporter.detail, note=reporter.say)
    converted, tensors = _rebuild(trained, resolved.recipe)
    scale_memories(converted.model, factors)
    reporter.say(tensors.describe())
    if factors:
        reporter.say(f"memories whose values are scaled: {len(factors)}")
    record = manifest.read(trained.folder)
    identity = Identity.of(resolved, record.hashes | {"init": str((record.model or {}).get("sha256"))})
    if factors:
        memory = {MEMORY: describe(factors)}
        decides, not_default = ({**settings, **memory} for settings in (identity.decides, identity.not_default))
        identity = replace(identity, decides=decides, not_default=not_default)
    with open_run(location, identity) as new:
        kl = kl_divergence(trained, converted, store) if "tokens" in trained.recipe.objective.PREDICTS else None
        before, after = (_measure(model, store) for model in (trained, converted))
        if new.status != "finished":
            start_run(new, identity)
            new.record_auto(record.auto)
            write_model_files(new, converted.recipe, converted.model, converted)
            weights = CheckpointTensors(converted.model.weights(), {}, {}, converted.objective_weights or {})
            metrics = {f"val.{name}": value for name, value in after.metrics.items() if name != "targets"}
            new.best_metric = usable_best_metric(converted.recipe, converted.labels)
            score, settings = new.best_metric.score(metrics), converted.recipe.checkpoint
            save_checkpoint(new, 0, weights, {}, score, settings, reporter.warn)
            new.finish("done", metrics=metrics if data is None else {})
        return Conversion(new.folder, tensors, before, after, kl)


def _resolve(trained: Trained, overrides: Sequence[str], unchanged: bool) -> Resolved:
    """The run's recipe with the overrides, without what a conversion has already used: the initial run, an adapter.

    unchanged: the settings may be those of the run.
    """
    used = ["model.init_from=null"] if trained.recipe.model.init_from is not None else []
    used += ["adapter=null", *overrides] if trained.recipe.adapter is not None else overrides
    kept = _kept_settings(trained.recipe.model, resolve(str(trained.folder), used).recipe.model)
    resolved = resolve(str(trained.folder), [*used, *kept])
    old, new = flat_values(trained.recipe), flat_values(resolved.recipe)
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    changed = [key for key in changed if not key.startswith(("adapter", "model.init_from"))]
    if not changed and not unchanged:
        hint = "for example model.attention.kind=window, or --memory 3:511=0"
        raise UsageFault(f"nothing to convert: {trained.folder.name} has these settings", hint=hint)
    if other := [key for key in changed if not (key.startswith("model.") and set(key.split(".")) & {*CONVERTED})]:
        hint = f"train with model.init_from={trained.folder.name} to change other settings"
        raise UsageFault(f"{other[0]}: a conversion changes only {', '.join(CONVERTED)} of the model", hint=hint)
    return replace(resolved, name=trained.folder.name)


def _kept_settings(old: ModelSettings, new: ModelSettings) -> list[str]:
    """Overrides with the settings that a mixer shares with those it replaces, such as qk_norm and scale.

    Elsewhere a new kind starts from its defaults; here they would change the meaning of the weights. Where it replaces
    mixers with different values, it has its default.
    """
    kept = []
    for key in ("attention", "cross_attention", "encoder.attention"):
        before, after = _mixers(old, key) or _mixers(old, "attention"), _mixers(new, key)
        if not after or after == before:
            continue
        period, values = len(before) * len(after), []  # a list of mixers is repeated over the layers
        for i, mixer in enumerate(after):
            first, *others = (before[layer % len(before)].model_dump() for layer in range(i, period, len(after)))
            names = [name for name in first if name in type(mixer).model_fields]
            names = [name for name in names if all(name in s and s[name] == first[name] for s in others)]
            shared = {name: first[name] for name in names}
            values.append({"kind": mixer.kind} | shared | mixer.model_dump(exclude_unset=True))
        kept.append(f"model.{key}={json.dumps(values if len(values) > 1 else values[0])}")
    return kept


def _mixers(model: ModelSettings, key: str) -> tuple[MixerSettings, ...]:
    """The mixers of `key`; () if the model has no such key, or an encoder has the decoder's."""
    value: Any = model
    for name in key.split("."):
        value = getattr(value, name, None)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _rebuild(trained: Trained, recipe: Recipe) -> tuple[Trained, LoadedTensors]:
    """The converted model; tensors that the original lacks are initialized."""
    tokenizers = trained.tokenizer, trained.source_tokenizer
    architecture = Architecture.of(recipe, *tokenizers, trained.labels, trained.model.context)
    model, name = architecture.initialize(seed_of(recipe.train.seed, "weights")), trained.folder.name
    tensors = _copy(trained.model.weights(), model.weights(), name)
    model.to(trained.setup.device).eval()
    torch.manual_seed(seed_of(recipe.train.seed, "objective"))
    objective = objective_tensors(model, architecture.objective.task(model).to(trained.setup.device))
    _copy(objective_tensors(trained.model, trained.task()), objective, name)
    return replace(
        trained, recipe=recipe, model=model, objective=architecture.objective, objective_weights=objective
    ), tensors


@torch.no_grad()
def _copy(weights: Mapping[str, Tensor], target: Mapping[str, Tensor], run: str) -> LoadedTensors:
    """Copy the tensors of `run` into those of the same names."""
    loaded = tuple(name for name in target if name in weights)
    for name in loaded:
        if target[name].shape != weights[name].shape:
            sizes = f"{list(weights[name].shape)} in {run}, but {list(target[name].shape)} after the conversion"
            raise RecipeFault(f"{name} is {sizes}", hint="choose settings that keep the shapes")
    for name in loaded:
        target[name].copy_(weights[name])
    new = tuple(name for name in target if name not in weights)
    return LoadedTensors(run, loaded, new, tuple(name for name in weights if name not in target))


def _measure(trained: Trained, store: Store) -> Measured:
    start = time.perf_counter()
    metrics = evaluate_trained(trained, store)
    if trained.setup.device.type == "cuda":
        torch.cuda.synchronize(trained.setup.device)
    return Measured(metrics, time.perf_counter() - start)


MEMORY = "memory"
"""Key of the factors in the identity of a run."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""`float` would also read 1_0, spaces, and digits of other scripts."""


def parse_factors(values: Sequence[str], model: Model, run: str) -> dict[MemoryIndex, float]:
    """The factor of each memory of the stack before the head; L and I may be lists and ranges.

    Raises UsageFault for a missing memory, a factor that is not finite, or two factors of one memory.
    """
    factors: dict[MemoryIndex, float] = {}
    if not values:
        return factors
    stack = model.stacks()[0].stack
    layers = {layer: part for layer, part in memory_layers(stack, run).items() if layer < len(stack.blocks)}
    for value in values:
        which, _, number = value.partition("=")
        factor = float(number) if NUMBER.fullmatch(number) else math.nan
        if not which or not math.isfinite(factor):
            raise UsageFault(f"--memory {value}: must be L:I=F, with a finite number F, such as 3:511=0")
        for memory in parse_memories([which], layers):
            if memory in factors:
                raise UsageFault(f"--memory {value}: memory {memory} was given before", hint="give each memory once")
            factors[memory] = factor + 0.0  # no -0
    return factors


def describe(factors: Mapping[MemoryIndex, float]) -> str:
    """The factors in order, however they were given."""
    return ", ".join(f"{memory}={factor!r}" for memory, factor in sorted(factors.items()))


@torch.no_grad()
def scale_memories(model: Model, factors: Mapping[MemoryIndex, float]) -> None:
    """Multiply the value of each memory by its factor. Raises UsageFault if the dtype of the weights cannot hold it."""
    layers = memory_layers(model.stacks()[0].stack, "") if factors else {}
    for memory, factor in factors.items():
        value = layers[memory.layer].values[memory.number].mul_(factor)
        if not value.isfinite().all():
            fault = f"--memory {memory}={factor!r}: the value is no longer finite"
            raise UsageFault(fault, hint="give a smaller factor")
