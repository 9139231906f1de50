"""Evaluation of a trained model: the data and the metrics."""

from mini_tf.data.opening import Say, encode, reopen
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
    say: Say = lambda line: None,
    fields: str | None = None,
    note: Say = lambda line: None,
) -> Store:
    """What to evaluate on: a split of the run's own data, or others, written as a recipe writes data.train (fields: and data.fields).

    note: is called with what is notable of other data, such as characters that the tokenizer does not know. Raises RunFault where the
    run's own are no longer what they were.
    """
    used, objective = Tokenizers(trained.source_tokenizer, trained.tokenizer), trained.recipe.objective
    if data is not None:
        return encode(other_data(trained, data, fields), used, objective, trained.labels, say, note)
    record = manifest.read(trained.folder)
    recorded = record.hashes
    if not manifest.hashes_token_ids(record):
        raise RunFault(f"{trained.folder} {manifest.OLD_HASHES}", hint="--data FILE judges it by a text that is named")
    text = reopen(trained.recipe.data, used, objective, recorded, say)
    if not text.hashes.items() <= recorded.items():
        raise RunFault(f"the text of {trained.folder} has changed since it was trained", hint="--data FILE judges it by another text")
    return text.sides[split]


def other_data(trained: Trained, data: str | None = None, fields: str | None = None) -> Data:
    """The section `data` of other data, which are read as the run's own unless `fields` names their columns."""
    return read_data(trained.recipe.data, trained.recipe.objective, data, fields)


def evaluate_trained(trained: Trained, store: Store, accumulator: MetricAccumulator | None = None) -> dict[str, float]:
    """`evaluate` for a model out of a run folder, with the question that it was trained on and in the same batches."""
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    rows = rows_at_once(trained.recipe, int(trained.auto.get("micro_batch_size", trained.recipe.train.batch_size)))
    return evaluate(trained.task(), trained.objective, packing, trained.setup, rows, accumulator=accumulator)
