"""The table of `minitf inspect syntax`: each relation's best attention head, a baseline and two controls."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import View
from mini_tf.inspection.gold.documents import LabelledDocument
from mini_tf.inspection.gold.syntax import ANTECEDENT, DIRECTIONS, NEAREST, OFFSETS, Comparison
from mini_tf.inspection.gold.word_states import with_random_weights, word_attention
from mini_tf.inspection.head_selection import HeadIndex
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

HEADERS = ("relation", "words", "best head", "accuracy", "baseline", "by", "random", "shuffled")
LEGEND = (
    "accuracy: share of the words whose syntactic head is the word that they attend to most (to), or that attends to"
    " them most (from); baseline: the word at the best fixed offset, for antecedents the nearest noun; random: the best"
    " head before training; shuffled: with shuffled labels. Chosen on every other document, scored on the rest."
)


def view(trained: Trained, documents: Sequence[LabelledDocument]) -> View:
    """Raises UsageFault if there are fewer than two documents, or no relation is in both halves."""
    if len(documents) < 2:
        raise UsageFault(
            f"2 or more documents are needed, got {len(documents)}; one half chooses the heads, the other scores them"
        )
    control, comparison, n_cut = with_random_weights(trained), Comparison(), 0
    heads: list[HeadIndex] = []
    for number, document in enumerate(documents):
        heads, attention = word_attention(trained, document.text)
        n_cut += attention.shape[1] < len(document.words)
        comparison.add(number, document, attention.numpy(), word_attention(control, document.text)[1].numpy())
    records = [_record(name, comparison, heads) for name in comparison.relations()]
    if not records:
        raise UsageFault("no relation occurs in two of the documents", hint="give more documents: --limit N")
    notes = (
        [f"{n_cut} of {len(documents)} documents are longer than the model's context and are truncated"]
        if n_cut
        else []
    )
    rows = [[one["relation"], one["words"], _name(one), *[*one.values()][6:]] for one in records]
    result = {"documents": len(documents), "relations": records, "notes": notes}
    return View(result, [partial(table, HEADERS, rows), partial(sentence, LEGEND)], [f"note: {note}" for note in notes])


def _record(name: str, comparison: Comparison, heads: Sequence[HeadIndex]) -> dict[str, Any]:
    best, baseline = comparison.heads.best(name), comparison.baseline.best(name)
    head, direction = heads[best.guesser // len(DIRECTIONS)], DIRECTIONS[best.guesser % len(DIRECTIONS)]
    found = {"relation": name, "words": best.n, **head._asdict(), "direction": direction, "accuracy": best.accuracy}
    found |= {"baseline": baseline.accuracy, "by": NEAREST if name == ANTECEDENT else f"{OFFSETS[baseline.guesser]:+d}"}
    return found | {
        "random": comparison.random.best(name).accuracy,
        "shuffled": comparison.shuffled.best(name).accuracy,
    }


def _name(record: dict[str, Any]) -> str:
    return f"L{record['layer']} H{record['head']} {record['direction']}"
