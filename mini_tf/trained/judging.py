"""A trained model judged: the text it is judged by, and its figures."""

from mini_tf.data.opening import AnyStore, encode, reopen
from mini_tf.data.token_store import Say
from mini_tf.objectives import Judge
from mini_tf.recipe import reading
from mini_tf.recipe.sections import Data
from mini_tf.run import manifest
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import evaluate, pack, rows_at_once


def text_of(trained: Trained, data: str | None, split: str, say: Say = lambda line: None, fields: str | None = None) -> AnyStore:
    """The text to judge by: a side of the run's own, or another one, written as a recipe writes data.val (fields: and data.fields).

    Raises RunFault where the run's own text is no longer what it was.
    """
    used = trained.source_tokenizer, trained.tokenizer
    if data is not None:
        other = read_as_own(trained, data, fields)
        return encode(other.val, used, other, trained.recipe.objective, trained.labels, say)
    recorded = manifest.read(trained.folder).hashes
    text = reopen(trained.recipe.data, used, trained.recipe.objective, recorded, say)
    if not text.hashes.items() <= recorded.items():
        raise RunFault(f"the text of {trained.folder} has changed since it was trained", hint="--data FILE judges it by another text")
    return text.val if split == "val" else text.train


def read_as_own(trained: Trained, val: str | None = None, fields: str | None = None) -> Data:
    """The run's section `data` with other held-out text, and other columns whose file may have a header or not."""
    # Of the recipe that is read only these are wanted: a run that learnt from stdin may be judged by stdin, which one recipe
    # names once, and one that learnt from two files by a table.
    own, said = trained.recipe.data, [] if val is None else [f"data.val={val.strip()}"]
    if fields is not None:
        said += [f"data.fields={fields}", "data.header=auto"]
    if trained.recipe.objective.FORM == "pairs":
        like = "{source: a, target: b}" if val is not None and val.lstrip().startswith("{") else "translate-toy"
        read = reading.read("transformer-nano", [f"data.train={like}", *said]).recipe.data
    else:
        read = reading.read(trained.folder, ["data.train=python-docs", *said]).recipe.data
    kept = {} if fields is None else {"fields": read.fields, "header": read.header}
    return own.model_copy(update={"val": read.val, **kept})


def evaluate_trained(trained: Trained, store: AnyStore, judge: Judge | None = None) -> dict[str, float]:
    """`evaluate` for a model out of a run folder, with the question that it was trained on and in the same batches."""
    objective = trained.objective
    packing = pack(trained.recipe, store, trained.tokenizer, objective)
    rows = rows_at_once(trained.recipe, int(trained.auto.get("micro_batch_size", trained.recipe.train.batch_size)))
    return evaluate(trained.task(), objective, packing, trained.setup, rows, judge=judge)
