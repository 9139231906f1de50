"""Evaluation of a trained model: its data and its metrics."""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.data.store import Store, Tokenizers
from mini_tf.data.tokenized import Report, encode_data, reopen
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.reading import read_data
from mini_tf.recipe.sections import Data
from mini_tf.run import finding, manifest
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator, eval_batch_size, evaluate, pack


def evaluation_data(
    trained: Trained,
    data: str | None,
    split: str,
    say: Report = lambda line: None,
    fields: str | None = None,
    note: Report = lambda line: None,
) -> Store:
    """The data to evaluate on: a split of the run's own data, or `data` in the syntax of data.train.

    fields: column names of `data` in the syntax of data.fields. note: called with notes on `data`, such as characters
    unknown to the tokenizer. Raises RunFault if the run's own data have changed since training.
    """
    if data is not None:
        used = Tokenizers(trained.source_tokenizer, trained.tokenizer)
        section = other_data(trained, data, fields)
        new = [role for role, name in section.fields.items() if trained.recipe.data.fields.get(role) != name]
        return encode_data(section, used, trained.recipe.objective, trained.labels, say, note, new)
    if trained.members and finding.model_folder(trained.folder) != trained.folder:
        fault = f"{trained.folder} is an ensemble of all folds, each of which was trained on most of data.train"
        run = finding.member_folders(trained.folder)[0]
        raise RunFault(fault, hint=f"--data FILE evaluates on other data, and {run} on the validation data of its fold")
    store = run_data(trained, say)[split]
    if store.streamed is not None:
        sample = f"a sample of {len(store):,} of about {store.n_tokens:,} tokens"
        note(f"the training data are streamed: the metrics are those of {sample}")
    return store


def run_data(trained: Trained, say: Report = lambda line: None) -> Mapping[str, Store]:
    """The splits of the run's own data, `train` and `val`.

    Raises RunFault if it has none, as an imported model, or if they have changed since training.
    """
    record = manifest.read(finding.model_folder(trained.folder))
    recorded, hint = record.hashes, "--data FILE evaluates on other data"
    if "data" not in recorded:
        raise RunFault(f"{trained.folder} was imported and not trained, so it has no data of its own", hint=hint)
    used = Tokenizers(trained.source_tokenizer, trained.tokenizer)
    tokenized = reopen(trained.recipe.data, used, trained.recipe.objective, recorded, say)
    if not tokenized.hashes.items() <= recorded.items():
        raise RunFault(f"the data of {trained.folder} have changed since training", hint=hint)
    return tokenized.splits


def other_data(trained: Trained, data: str | None = None, fields: str | None = None) -> Data:
    """The recipe section `data` for other data; the run's own settings apply, except the columns given in `fields`."""
    return read_data(trained.recipe.data, trained.recipe.objective, data, fields)


def decision_notes(trained: Trained, fitted_on: bool = False) -> list[str]:
    """A note on what was fitted to decide on classes, if it is not applied, or with `fitted_on` these very data."""
    if trained.members:
        each = [member.decision for member in trained.members if member.decision is not None]
        n = sum(decision != manifest.Decision(figures=decision.figures) for decision in each)
        of = f"{n} of {len(trained.members)} models"
        note = f"a temperature or bias of {of} was fitted on these data, so the metrics are optimistic"
        return [note] if n and fitted_on else []
    if not finding.is_run(trained.folder):  # a model that was opened where it lies, in another tool's form
        return []
    record = manifest.read(trained.folder)
    fitted = record.decision
    if fitted is None or fitted == manifest.Decision(figures=fitted.figures):
        return []
    values = {"temperature": fitted.temperature != 1, "bias": fitted.bias}
    parts = " and ".join(name for name, is_fitted in values.items() if is_fitted)
    several = all(values.values())
    if trained.decision is None:
        assert record.model is not None
        step = record.model["step"]
        verb = "are" if several else "is"
        return [f"the {parts} fitted for model.safetensors (step {step}) {verb} not applied to these weights"]
    if not fitted_on:
        return []
    crossed = ", ".join(f"{name} {before:.4f} -> {after:.4f}" for name, (before, after) in fitted.figures.items())
    verb = "were" if several else "was"
    return [f"the {parts} {verb} fitted on these data, so the metrics are optimistic; cross-fitted: {crossed}"]


@torch.no_grad()
def kl_divergence(reference: Trained, other: Trained, store: Store) -> float:
    """The mean of KL(p || q) over the targets of `store`, in nats: p of `reference`, q of `other`.

    Both predict tokens with one vocabulary and one objective.
    """
    packing = pack(reference.recipe, store, reference.tokenizer, reference.objective)
    tasks = [(trained, trained.task()) for trained in (reference, other)]
    total, targets = 0.0, 0
    for rows in packing.eval_rows(_rows(reference)):
        batch = reference.objective.prepare_evaluation(rows)
        p, q = (_target_log_probs(trained, task, batch) for trained, task in tasks)
        total += float(F.kl_div(q, p, reduction="sum", log_target=True))
        targets += p[..., 0].numel()  # (T, V), or (B, L, V) where every token is a target
    return max(total, 0.0) / max(1, targets)  # rounding may make it negative; in this order NaN stays NaN


def _target_log_probs(trained: Trained, task: nn.Module, batch: Batch) -> Tensor:
    """Log-probabilities of the targets of a batch, (T, V) or (B, L, V), from the hidden states of the task."""
    hidden = list[Tensor]()
    hook = trained.model.register_forward_hook(lambda module, inputs, output: hidden.append(output.y))
    with trained.setup.autocast():
        try:
            task(batch.to(trained.setup.device), None)
        finally:
            hook.remove()
        logits = trained.model.logits(hidden[-1])
    return logits.float().log_softmax(dim=-1)


def _rows(trained: Trained) -> int:
    recipe = trained.recipe
    return eval_batch_size(recipe, int(trained.auto.get("micro_batch_size", recipe.train.batch_size)))


def evaluate_trained(
    trained: Trained, store: Store, accumulator: MetricAccumulator | None = None, group: ProcessGroup | None = None
) -> dict[str, float]:
    """The metrics of a trained model on `store`, with the objective and the micro-batch size of its training.

    group: processes that evaluate together. RunFault if the loss is not finite.
    """
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    sharding, task = Sharding(group or ProcessGroup()), trained.task()
    metrics = evaluate(
        task, trained.objective, packing, trained.setup, _rows(trained), accumulator=accumulator, sharding=sharding
    )
    if not math.isfinite(loss := metrics["loss"]):
        message = f"the loss of {trained.folder} is {loss}: its outputs are not finite"
        raise RunFault(message, hint="choose an earlier checkpoint: --step N", where=[str(trained.folder)])
    return metrics
