"""Tagging metrics: by entity if the tags mark entities, else by word.

Entities are counted as by seqeval (default mode) and conlleval.pl of CoNLL-2000: an entity is right if its first and
last word and its type are; inconsistent tags (I-PER after O) still begin an entity. Sources: Tjong Kim Sang and
Buchholz 2000; Ramshaw and Marcus 1995 (tags); Nakayama 2018 (seqeval).
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from mini_tf.scores import available
from mini_tf.scores.classes import class_scores

_ENTITY_TAG = re.compile(r"[BIESLU](-.+)?", re.DOTALL)
_BILOU = {"L": "E", "U": "S"}
"""seqeval calls last and unit end and single, and knows no others."""


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], tags: Iterable[str] = ()) -> dict[str, float]:
    """Metrics from one tag per word of each text, all 0-1; tags: the whole tag set, if known.

    Entity tags (`mark_entities`): accuracy by word; entity_f1, entity_precision, entity_recall over all entities, 0 if
    there are none; entity_f1.<type> for types that occur. Other tags (parts of speech): accuracy and f1_macro by word.
    Without seqeval or scikit-learn only accuracy. ValueError if there are no words or lengths differ.
    """
    if list(map(len, truth)) != list(map(len, predicted)):
        raise ValueError("truth and predictions must have the same texts with a tag for each word")
    theirs, ours = list(chain.from_iterable(truth)), list(chain.from_iterable(predicted))
    names = sorted({*theirs, *ours})
    number = {name: i for i, name in enumerate(names)}
    true, chosen = (np.array([number[tag] for tag in side], dtype=np.int64) for side in (theirs, ours))
    by_word = class_scores(true, chosen, names)
    if not mark_entities({*names, *tags}):
        return {name: by_word[name] for name in ("accuracy", "f1_macro") if name in by_word}
    whole = _of_entities(truth, predicted) if available("seqeval", "scikit-learn") else {}
    return {"accuracy": by_word["accuracy"], **whole}


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: each but O is B, I, E, S, L or U, alone or before a hyphen and a type.

    True for IOB1, IOB2, IOBES and BILOU. False if all are O.
    """
    marks = {*tags} - {"O"}
    return bool(marks) and all(_ENTITY_TAG.fullmatch(tag) for tag in marks)


def _of_entities(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    sides = [[list(map(_as_iobes, text)) for text in side] for side in (truth, predicted)]
    precision, recall, f1, _ = precision_recall_fscore_support(*sides, average="micro", zero_division=0)
    by_type = precision_recall_fscore_support(*sides, average=None, zero_division=0)[2]
    types = sorted({entity[0] for side in sides for entity in get_entities(side)})
    overall = {"entity_f1": float(f1), "entity_precision": float(precision), "entity_recall": float(recall)}
    return overall | {f"entity_f1.{name}": float(score) for name, score in zip(types, by_type, strict=True)}


def _as_iobes(tag: str) -> str:
    return _BILOU.get(tag[0], tag[0]) + tag[1:]
