"""What the sections of a recipe must be to each other: the rules that no section can check alone.

Each yields the dotted key that is at fault, and the fault with the nearest way out.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mini_tf.errors import UsageFault
from mini_tf.recipe.gates import Gate
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.values import show

if TYPE_CHECKING:
    from mini_tf.recipe.sections import Recipe

SIDES = {"left": "only what stands before", "both": "both sides"}
"""What a model that READS so reads, in words."""


def rules(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    yield from _reading(recipe)
    yield from _streaming(recipe)
    yield from _positions(recipe)
    for mixer in _kinds(recipe, "PACKS") if recipe.data.pack == "docs" else ():
        yield "data.pack", f"attention {mixer} cannot keep documents of one row apart; use pack: none or concat"
    schedule, train = recipe.schedule, recipe.train
    steps = train.steps or (train.tokens and train.tokens // (train.batch_size * train.context))
    if isinstance(schedule.warmup, int) and steps and schedule.warmup >= steps:
        yield "schedule.warmup", f"{schedule.warmup} steps are the whole run of {steps}; use fewer, or a share such as 5%"
    for name, gate in recipe.expect.items():
        try:
            Gate.parse(f"{name}{gate}")
        except UsageFault:
            yield "expect", f"{name}: must be a comparison such as <1.9, got {show(gate)}"


def _kinds(recipe: "Recipe", lacking: str) -> Iterator[str]:
    """The kinds of the model's mixers that cannot do what the class attribute `lacking` says."""
    yield from dict.fromkeys(mixer.kind for mixer in getattr(recipe.model, "attention", ()) if not getattr(mixer, lacking))


def _reading(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    reads, needs = getattr(recipe.model, "READS", None), getattr(recipe.objective, "NEEDS", None)
    if not reads or not needs or reads == needs:
        return
    fitting = [word for word in listing("objectives") if getattr(settings_of("objectives", word), "NEEDS", None) == reads]
    others = [word for word in listing("models") if getattr(settings_of("models", word), "READS", None) == needs]
    ways = [f"{key} {word}" for key, words in (("objective", fitting), ("model", others)) for word in words]
    way = f"; use {' or '.join(ways)}" if ways else ""
    yield (
        "objective",
        f"{recipe.objective.kind} needs a model that reads {SIDES[needs]}, {recipe.model.kind} reads {SIDES[reads]}{way}",
    )


def _streaming(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    if not recipe.train.stream:
        return
    for mixer in _kinds(recipe, "STREAMS"):
        yield "train.stream", f"attention {mixer} cannot carry its state from step to step; use stream: false or another attention"
    if getattr(recipe.model, "READS", None) == "both":
        yield "train.stream", f"a stream carries what came before, but the {recipe.model.kind} reads both sides; use model decoder"
    if recipe.data.pack != "concat":
        yield "train.stream", f"a stream reads on over the borders of documents; use data.pack concat, not {recipe.data.pack}"


def _positions(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    positions = getattr(recipe.model, "positions", None)
    if not getattr(positions, "ENDS", False):
        return
    kind, length, context = getattr(positions, "kind", ""), getattr(positions, "length", "auto"), recipe.train.context
    if recipe.train.stream:
        yield "train.stream", f"a stream runs past the end of {kind} positions; use rotary, alibi or sinusoidal ones"
    elif isinstance(length, int) and length < context:
        yield "model.positions.length", f"{length} places cannot hold a row of train.context {context} tokens; use at least {context}"
