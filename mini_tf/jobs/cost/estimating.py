"""What a run of a recipe would take: its own beginning, and a few of its steps, which are then forgotten."""

import time

from mini_tf.data.opening import reopen
from mini_tf.jobs.assembling import build, opened
from mini_tf.jobs.cost.whole import Cost, cost_of
from mini_tf.jobs.session import Reporter
from mini_tf.jobs.start_messages import report_start
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.machine.device import resolve_setup


def estimate(recipe: Recipe, reporter: Reporter, seconds: float | None = None) -> Cost:
    """What a run would take, from its own beginning and `seconds` of its steps, which are then forgotten."""
    text = opened(recipe, reporter)
    began = time.monotonic()
    reopen(recipe.data, text.used, recipe.objective, text.hashes)  # out of the cache, as a run will find it
    parts = build(recipe, text, resolve_setup(recipe.runtime), reporter.detail)
    report_start(parts, reporter)
    return cost_of(parts, time.monotonic() - began, seconds)
