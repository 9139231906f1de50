"""Metrics of token classification: F1 over entities if the tags mark entities, else by word.

Entities are counted as by seqeval's default and conlleval.pl of CoNLL-2000: an entity is correct if its first and last
word and its type are; inconsistent tags (I-PER after O) still make an entity. Sources: Tjong Kim Sang and Buchholz
2000; Ramshaw and Marcus 1995 (tags); Nakayama 2018 (seqeval).
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from mini_tf.scores import available
from mini_tf.scores.classes import class_scores

_ENTITY_TAG = re.compile(r"[BIESLU](-.+)?", re.DOTALL)
_BILOU = {"L": "E", "U": "S"}
"""BILOU to IOBES, the only names that seqeval knows."""


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str | None]], tags: Iterable[str] = ()) -> dict[str, float]:
    """Metrics (0-1) from one tag per word of each text; `tags`: the whole tag set, if known.

    For tags that mark entities (`mark_entities`): accuracy by word; entity_f1, entity_precision and entity_recall over
    all entities, 0 if there are none; entity_f1.<type> of each type in labels or predictions. Other tags (e.g. parts of
    speech): accuracy and f1_macro by word. A prediction None is
    wrong, and belongs to no entity. Without seqeval or scikit-learn: only accuracy. Raises ValueError if there are no
    words or the numbers of words differ.
    """
    if list(map(len, truth)) != list(map(len, predicted)):
        raise ValueError("truth and predictions must have the same texts with a tag for each word")
    true_tags, predicted_tags = list(chain.from_iterable(truth)), list(chain.from_iterable(predicted))
    names = sorted({*true_tags, *(tag for tag in predicted_tags if tag is not None)})
    number: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(names)}
    true_ids, predicted_ids = (np.array([number[tag] for tag in one], dtype=np.int64) for one in (true_tags, predicted_tags))
    by_word = class_scores(true_ids, predicted_ids, names)
    if not mark_entities({*names, *tags}):
        return {name: by_word[name] for name in ("accuracy", "f1_macro") if name in by_word}
    found = [["O" if tag is None else tag for tag in text] for text in predicted]
    by_entity = _by_entity(truth, found) if available("seqeval", "scikit-learn") else {}
    return {"accuracy": by_word["accuracy"], **by_entity}


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the tags are of a chunk scheme: IOB1, IOB2, IOBES or BILOU.

    Each tag but O is B, I, E, S, L or U, alone or with "-TYPE"; not all are O.
    """
    marks = {*tags} - {"O"}
    return bool(marks) and all(_ENTITY_TAG.fullmatch(tag) for tag in marks)


def _by_entity(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    tagged_texts = [[list(map(iobes, text)) for text in tagged] for tagged in (truth, predicted)]
    precision, recall, f1, _ = precision_recall_fscore_support(*tagged_texts, average="micro", zero_division=0)
    by_type = precision_recall_fscore_support(*tagged_texts, average=None, zero_division=0)[2]
    types = sorted({entity[0] for tagged in tagged_texts for entity in get_entities(tagged)})
    overall = {"entity_f1": float(f1), "entity_precision": float(precision), "entity_recall": float(recall)}
    return overall | {f"entity_f1.{name}": float(score) for name, score in zip(types, by_type, strict=True)}


def iobes(tag: str) -> str:
    return _BILOU.get(tag[0], tag[0]) + tag[1:]
