"""Evaluation of a trained model: the data and the metrics."""

from mini_tf.data.opening import Report, encode_data, reopen
from mini_tf.data.store import Store, Tokenizers
from mini_tf.recipe.reading import read_data
from mini_tf.recipe.sections import Data
from mini_tf.run import manifest
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator, evaluate, pack, rows_at_once


def text_of(
    trained: Trained,
    data: str | None,
    split: str,
    say: Report = lambda line: None,
    fields: str | None = None,
    note: Report = lambda line: None,
) -> Store:
    """The data to evaluate on: a split of the run's own data, or other data in the form of data.train (fields: and
    data.fields).

    note: called with notes on other data, such as characters unknown to the tokenizer. RunFault if the run's own data
    changed.
    """
    used, objective = Tokenizers(trained.source_tokenizer, trained.tokenizer), trained.recipe.objective
    if data is not None:
        return encode_data(other_data(trained, data, fields), used, objective, trained.labels, say, note)
    record = manifest.read(trained.folder)
    recorded = record.hashes
    if not manifest.hashes_ids(record):
        raise RunFault(f"{trained.folder} {manifest.OTHER_HASHES}", hint="--data FILE evaluates on a file")
    text = reopen(trained.recipe.data, used, objective, recorded, say)
    if not text.hashes.items() <= recorded.items():
        raise RunFault(f"the data of {trained.folder} has changed since training", hint="--data FILE evaluates on another file")
    return text.splits[split]


def other_data(trained: Trained, data: str | None = None, fields: str | None = None) -> Data:
    """The section `data` for other data, read as the run's own unless `fields` names their columns."""
    return read_data(trained.recipe.data, trained.recipe.objective, data, fields)


def evaluate_trained(trained: Trained, store: Store, accumulator: MetricAccumulator | None = None) -> dict[str, float]:
    """`evaluate` for a trained model, with its own objective and batch sizes."""
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    rows = rows_at_once(trained.recipe, int(trained.auto.get("micro_batch_size", trained.recipe.train.batch_size)))
    return evaluate(trained.task(), trained.objective, packing, trained.setup, rows, accumulator=accumulator)
