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

_ENTITY_TAGS = (
    re.compile(r"(?P<mark>[BIESLUMW])([-_](?P<type>.+))?", re.DOTALL),
    re.compile(r"(?P<type>.+)[-_](?P<mark>[BIESLUMW])", re.DOTALL),
)
"""B-PER, B_PER or B; PER-B or PER_B."""
_IOBES = {"L": "E", "U": "S", "M": "I", "W": "S"}
"""The marks of BILOU, BMES and BMEWO in IOBES, the only names that seqeval knows."""


def entity_scores(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str | None]], tags: Iterable[str] = ()
) -> dict[str, float]:
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
    true_ids, predicted_ids = (
        np.array([number[tag] for tag in one], dtype=np.int64) for one in (true_tags, predicted_tags)
    )
    by_word = class_scores(true_ids, predicted_ids, names)
    if not mark_entities({*names, *tags}):
        return {name: by_word[name] for name in ("accuracy", "f1_macro") if name in by_word}
    found = [["O" if tag is None else tag for tag in text] for text in predicted]
    by_entity = _by_entity(truth, found) if available("seqeval", "scikit-learn") else {}
    return {"accuracy": by_word["accuracy"], **by_entity}


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the tags are of a chunk scheme: IOB1, IOB2, IOBES, BILOU, BMES or BMEWO.

    Each tag but O is B, I, E, S, L or U, alone or with "-TYPE"; not all are O. With B also M or W, "_TYPE", or the type
    first.
    """
    found = [_parts(tag) for tag in {*tags} - {"O"}]
    marks = {mark for mark, _, _ in found}
    usual = marks <= {*"BIESLU"} and all(as_usual for _, _, as_usual in found)
    return bool(found) and marks <= {*"BIESLUMW"} and (usual or "B" in marks)


def _parts(tag: str) -> tuple[str, str, bool]:
    """The mark and the type of a tag, and whether it is written as in CoNLL-2003; no mark if it is none."""
    matches = (form.fullmatch(tag) for form in _ENTITY_TAGS)
    found = next(filter(None, matches), None)
    mark, type_ = (found["mark"], found["type"] or "") if found else ("", tag)
    return mark, type_, tag == (f"{mark}-{type_}" if type_ else mark)


def _by_entity(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    tagged_texts = [[list(map(iobes, text)) for text in tagged] for tagged in (truth, predicted)]
    precision, recall, f1, _ = precision_recall_fscore_support(*tagged_texts, average="micro", zero_division=0)
    by_type = precision_recall_fscore_support(*tagged_texts, average=None, zero_division=0)[2]
    types = sorted({entity[0] for tagged in tagged_texts for entity in get_entities(tagged)})
    overall = {"entity_f1": float(f1), "entity_precision": float(precision), "entity_recall": float(recall)}
    return overall | {f"entity_f1.{name}": float(score) for name, score in zip(types, by_type, strict=True)}


def iobes(tag: str) -> str:
    """A tag of any chunk scheme as one of IOBES, such as B-PER; O and other tags as they are."""
    mark, type_, _ = _parts(tag)
    if not mark:
        return tag
    return _IOBES.get(mark, mark) + (f"-{type_}" if type_ else "")
