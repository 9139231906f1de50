"""Metrics of texts that are made of the sources, under the names that those of generated texts have."""

from collections.abc import Callable

import numpy as np

from mini_tf.baselines import BaselineData, Measured, NoBaseline
from mini_tf.scores import TEXT_METRICS, can_measure
from mini_tf.scores.scripts import count_words
from mini_tf.scores.texts import text_scores
from mini_tf.system.seeds import seed_of

REFERENCE_METRICS = tuple(TEXT_METRICS)
MOST_WORK = 30_000_000
"""Of words of the texts times words of the references, as ROUGE-L's time; with more, a random part is scored."""


def text_measured(name: str, data: BaselineData, write: Callable[[str], str]) -> Measured:
    """Measure the texts that `write` makes of the sources of the validation examples."""
    if not can_measure(TEXT_METRICS):
        raise NoBaseline("neither rouge-score nor sacrebleu is installed")
    examples = map(data.dataset.source_and_references, data.examples(data.val.store))
    texts = [(write(source), references) for source, references in examples]
    work = sum(count_words(text) * sum(map(count_words, references)) for text, references in texts)
    chosen = np.random.default_rng(seed_of("baseline")).random(len(texts)) < MOST_WORK / max(1, work)
    scored = [one for one, used in zip(texts, chosen, strict=True) if used] or texts[:1]
    note = f"on {len(scored):,} of {len(texts):,} validation examples" if len(scored) < len(texts) else ""
    data.check()
    return Measured(name, text_scores(scored), note)
