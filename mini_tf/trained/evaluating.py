"""Evaluation of a trained model: its data and its metrics."""

from mini_tf.data.opening import Report, encode_data, reopen
from mini_tf.data.store import Store, Tokenizers
from mini_tf.recipe.reading import read_data
from mini_tf.recipe.sections import Data
from mini_tf.run import manifest
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
    used, objective = Tokenizers(trained.source_tokenizer, trained.tokenizer), trained.recipe.objective
    if data is not None:
        return encode_data(other_data(trained, data, fields), used, objective, trained.labels, say, note)
    record = manifest.read(trained.folder)
    recorded = record.hashes
    if not manifest.hashes_token_ids(record):
        raise RunFault(f"{trained.folder} {manifest.OLD_HASHES}", hint="--data FILE evaluates on data given by name")
    tokenized = reopen(trained.recipe.data, used, objective, recorded, say)
    if not tokenized.hashes.items() <= recorded.items():
        raise RunFault(f"the data of {trained.folder} have changed since training", hint="--data FILE evaluates on other data")
    return tokenized.splits[split]


def other_data(trained: Trained, data: str | None = None, fields: str | None = None) -> Data:
    """The recipe section `data` for other data; the run's own settings apply, except the columns given in `fields`."""
    return read_data(trained.recipe.data, trained.recipe.objective, data, fields)


def evaluate_trained(trained: Trained, store: Store, accumulator: MetricAccumulator | None = None) -> dict[str, float]:
    """The metrics of a trained model on `store`, with the objective and the micro-batch size of its training."""
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    rows = eval_batch_size(trained.recipe, int(trained.auto.get("micro_batch_size", trained.recipe.train.batch_size)))
    return evaluate(trained.task(), trained.objective, packing, trained.setup, rows, accumulator=accumulator)
