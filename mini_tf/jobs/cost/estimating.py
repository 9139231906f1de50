"""Measures the cost of a recipe: builds its run and times a few steps."""

import time

from mini_tf.data.opening import reopen
from mini_tf.jobs.assembling import build, opened
from mini_tf.jobs.cost.whole import Cost, cost_of
from mini_tf.jobs.session import Reporter
from mini_tf.jobs.start_messages import report_start
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.machine.device import settle


def estimate(recipe: Recipe, reporter: Reporter, seconds: float | None = None) -> Cost:
    """The cost of a run, from building it and `seconds` of its steps."""
    text = opened(recipe, reporter)
    began = time.monotonic()
    reopen(recipe.data, text.tokenizers, recipe.objective, text.hashes)  # from the cache, as the run will do
    parts = build(recipe, text, settle(recipe.runtime), reporter.detail)
    report_start(parts, reporter)
    return cost_of(parts, time.monotonic() - began, seconds)
