"""Estimates the cost of a recipe's run from its start-up and a few training steps."""

import time

from mini_tf.data.tokenized import reopen
from mini_tf.jobs.assembling import build, load_data
from mini_tf.jobs.cost.run_cost import Cost, measure_cost
from mini_tf.jobs.session import Reporter
from mini_tf.jobs.start_messages import report_start
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.machine.device import resolve_setup


def estimate(recipe: Recipe, reporter: Reporter, seconds: float | None = None) -> Cost:
    """Build the parts of the run, train for `seconds` (default 5), and extrapolate; the weights are discarded."""
    data = load_data(recipe, reporter)
    start = time.monotonic()
    reopen(recipe.data, data.tokenizers, recipe.objective, data.hashes)  # timed from the cache, as in a run
    parts = build(recipe, data, resolve_setup(recipe.runtime), reporter.detail)
    report_start(parts, reporter)
    return measure_cost(parts, time.monotonic() - start, seconds)


def report_estimate(recipe: Recipe, reporter: Reporter) -> dict[str, float | None]:
    """Print the estimate of a run, for --dry-run; returns its metrics."""
    cost = estimate(recipe, reporter)
    runs = f" for {cost.run_set}" if cost.run_set else ""
    reporter.say(
        f"estimate: {cost.timing.seconds * 1000:.0f} ms per step, {cost.total / 60:.1f} minutes in total{runs}; nothing"
        " was saved"
    )
    return {**cost.metrics}
