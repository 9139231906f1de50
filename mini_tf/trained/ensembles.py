"""Ensembles: the models of all runs of a set (`train.ensemble`), whose predictions are averaged.

Memory: all models at once. Time: one forward pass per model.
Source: Hansen and Salamon 1990, Neural network ensembles; Lakshminarayanan et al. 2017, arXiv:1612.01474 (the mean of
the probabilities).
"""

from dataclasses import replace
from pathlib import Path

from mini_tf.recipe.recipe import Recipe
from mini_tf.run import finding, manifest
from mini_tf.run.identity import read_recipe
from mini_tf.run.manifest import Decision
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import Trained, open_trained

ENSEMBLE = ".ensemble"
"""Suffix of a metric of the ensemble of several seeds."""


def open_ensemble(
    run: str | Path, step: int | str | None = None, device: str = "auto", average: int | str | None = None
) -> Trained:
    """`open_trained` with the models of all runs as `members` if the recipe of a set has `train.ensemble`.

    With `step` or `average` there is only the one model. RunFault if a run is missing, or has other classes.
    """
    folder = finding.find(run)
    trained = open_trained(folder, step, device, average)
    recipe = trained.recipe if finding.model_folder(folder) == folder else read_recipe(folder)  # not that of a fold
    if recipe.train.ensemble is None or step is not None or average is not None:
        return trained
    folders = finding.member_folders(folder)
    n = _n_runs(recipe)
    if len(folders) != n:
        fault = f"{folder} has {len(folders)} of the {n} runs whose predictions are averaged (train.ensemble)"
        raise RunFault(fault, hint="the folder of one of its runs can be used by itself", where=[str(folder)])
    runs = [open_ensemble(member_folder, device=device) for member_folder in folders]
    members = [model for each in runs for model in (each.members or (each,))]  # of folds and seeds, all seeds
    names = None if trained.labels is None else trained.labels.names
    if other := next(
        (member for member in members if (None if member.labels is None else member.labels.names) != names), None
    ):
        fault = f"{other.folder} has other classes than the model of {folder}, so their predictions cannot be averaged"
        raise RunFault(fault, hint="objective.labels lists the classes of all runs", where=[str(other.folder)])
    decision = Decision.of_ensemble([member.decision for member in members])
    return replace(trained, members=tuple(members), decision=decision)


def _n_runs(recipe: Recipe) -> int:
    folds = recipe.data.split.folds if recipe.data.split.is_set else None
    return folds or recipe.train.seeds


def one_of_ensemble(folder: Path) -> str | None:
    """A line for the user of the one model in a run's folder; None unless the run is an ensemble of several.

    Of seeds it compares the model with the ensemble; those of folds have no validation data in common.
    """
    recipe, record = read_recipe(folder), manifest.read(folder)
    if recipe.train.ensemble is None or record.model_run is None:
        return None
    line = f"one of the {_n_runs(recipe)} models of the ensemble is written, that of {record.model_run}"
    member = manifest.read(folder / record.model_run)
    for name in (*member.figures, "val.loss"):
        alone, together = member.metrics.get(name), record.metrics.get(f"{name}{ENSEMBLE}")
        if record.model_run.startswith("seed-") and alone is not None and together is not None:
            return f"{line}: {name} {alone:.4f}, and {together:.4f} of the ensemble"
    return line
