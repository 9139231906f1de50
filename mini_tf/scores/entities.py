"""Tags that mark entities: F1 over entities, schemes (IOB1, IOB2, IOBES, BILOU, BMES), which tag may follow which.

Entities are counted as by seqeval's default and conlleval.pl of CoNLL-2000: an entity is correct if its first and last
word and its type are; inconsistent tags (I-PER after O) still make an entity. A legal sequence of tags writes each
entity in one way only. Other tags have accuracy and F1 by word. Sources: Tjong Kim Sang and Buchholz 2000; Ramshaw and
Marcus 1995 (IOB1); Tjong Kim Sang and Veenstra 1999 (IOB2, IOE); Ratinov and Roth 2009 (BILOU); Nakayama 2018.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from mini_tf.scores import available
from mini_tf.scores.label_scores import class_scores

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
    speech): accuracy and f1_macro by word. A prediction None is wrong, and belongs to no entity. Without seqeval or
    scikit-learn: only accuracy.
    """
    true_tags, predicted_tags = list(chain.from_iterable(truth)), list(chain.from_iterable(predicted))
    names = sorted({*true_tags, *(tag for tag in predicted_tags if tag is not None)})
    number: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(names)}
    true_ids, predicted_ids = (
        np.array([number[tag] for tag in sequence], dtype=np.int64) for sequence in (true_tags, predicted_tags)
    )
    by_word = class_scores(true_ids, predicted_ids, names)
    if not mark_entities({*names, *tags}):
        return {name: by_word[name] for name in ("accuracy", "f1_macro") if name in by_word}
    tags_of_texts = [["O" if tag is None else tag for tag in text] for text in predicted]
    by_entity = _by_entity(truth, tags_of_texts) if available("seqeval", "scikit-learn") else {}
    return {"accuracy": by_word["accuracy"], **by_entity}


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the tags are of a chunk scheme: IOB1, IOB2, IOBES, BILOU, BMES or BMEWO.

    Each tag but O is B, I, E, S, L or U, alone or with "-TYPE"; not all are O. With B also M or W, "_TYPE", or the type
    first.
    """
    parts = [_parts(tag) for tag in {*tags} - {"O"}]
    marks = {mark for mark, _, _ in parts}
    usual = marks <= {*"BIESLU"} and all(as_usual for _, _, as_usual in parts)
    return bool(parts) and marks <= {*"BIESLUMW"} and (usual or "B" in marks)


def _parts(tag: str) -> tuple[str, str, bool]:
    """The mark and the type of a tag, and whether it is written as in CoNLL-2003; no mark if it is none."""
    matches = (form.fullmatch(tag) for form in _ENTITY_TAGS)
    match = next(filter(None, matches), None)
    mark, type_ = (match["mark"], match["type"] or "") if match else ("", tag)
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


OUTSIDE = "O"
BEGIN, END = "inside may begin", "inside may end"
"""Rules that data need not follow: `TagScheme.of`."""
LARGEST_SHARE = 0.05
"""Data follow a rule if at most this share of their entities breaks it."""


@dataclass(frozen=True, eq=False)
class TagScheme:
    """What each of C tags is, (C,) each. mark: one of O, B, I, E, S. type: number of its entity type, -1 for O.

    may_begin: it may follow a tag after which an entity may end, or begin the text. continues: it may follow a tag of
    its type after which the entity may go on. may_end, may_go_on: an entity may end, or go on, after it.
    """

    mark: np.ndarray
    type: np.ndarray
    may_begin: np.ndarray
    continues: np.ndarray
    may_end: np.ndarray
    may_go_on: np.ndarray

    @classmethod
    def of(cls, names: Sequence[str], lax: Collection[str] = ()) -> "TagScheme":
        """The scheme of tags that mark entities (`scores.entities.mark_entities`). lax: `lax_rules` of the data.

        I or E begin an entity only if its type has no B, or if `lax` has BEGIN (IOB1). If a type has E (L), its I does
        not end an entity, unless `lax` has END (IOE1), nor does its B if it has S (U), too.
        """
        parts = [iobes(name).partition("-") for name in names]
        mark = np.array([part[0] for part in parts])
        numbers = {name: n for n, name in enumerate(dict.fromkeys(part[2] for part in parts if part[0] != OUTSIDE))}
        of_type = np.array([-1 if part[0] == OUTSIDE else numbers[part[2]] for part in parts])
        has = {letter: np.isin(of_type, of_type[mark == letter]) for letter in "BES"}
        continues = np.isin(mark, ["I", "E"])
        open_only = has["E"] & (((mark == "I") & (END not in lax)) | ((mark == "B") & has["S"]))
        return cls(
            mark, of_type, ~continues | ~has["B"] | (BEGIN in lax), continues, ~open_only, np.isin(mark, ["B", "I"])
        )

    @cached_property
    def legal(self) -> np.ndarray:
        """(C, C): whether the second tag may follow the first one."""
        legal: np.ndarray = self._goes_on | (self.may_end[:, None] & self.may_begin)
        return legal

    @cached_property
    def _goes_on(self) -> np.ndarray:
        goes_on: np.ndarray = (self.type[:, None] == self.type) & self.may_go_on[:, None] & self.continues
        return goes_on

    def _borders(self) -> tuple[np.ndarray, np.ndarray]:
        """(C + 1, C + 1) each: whether an entity ends with the first tag, and begins with the second one.

        As in conlleval.pl, so also for illegal sequences. The tag C is that of no word.
        """
        mark, of_type = np.append(self.mark, OUTSIDE), np.append(self.type, -1)
        before, after = mark[:, None], mark
        other_type = of_type[:, None] != of_type
        ends = (before != OUTSIDE) & (np.isin(before, ["E", "S"]) | np.isin(after, ["B", "S", OUTSIDE]) | other_type)
        begins = (after != OUTSIDE) & (np.isin(after, ["B", "S"]) | np.isin(before, ["E", "S", OUTSIDE]) | other_type)
        return ends, begins

    def entities(self, tags: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(n, 3): first word, last word and type of each entity in texts of `lengths` words. tags (N,)."""
        words = np.arange(len(tags)) + np.repeat(np.arange(len(lengths)), lengths)
        tagged = np.full(len(tags) + len(lengths), len(self.mark))  # a word that does not exist follows each text
        tagged[words] = tags
        ends, begins = (table[np.append(len(self.mark), tagged[:-1]), tagged] for table in self._borders())
        first, last = np.flatnonzero(begins), np.flatnonzero(ends) - 1
        first = first[np.searchsorted(first, last, side="right") - 1]
        number = np.zeros(len(tagged), np.int64)
        number[words] = np.arange(len(tags))
        return np.stack([number[first], number[last], self.type[tagged[first]]], axis=1)


def lax_rules(names: Sequence[str], pairs: Mapping[tuple[str, str], int]) -> tuple[str, ...]:
    """The rules that data with these counts of successive tags do not follow; texts begin and end with O."""
    number = {name: n for n, name in enumerate(dict.fromkeys([*names, OUTSIDE]))}
    scheme = TagScheme.of([*number])
    counts = np.zeros((len(number), len(number)), np.int64)
    for (before, after), count in pairs.items():
        counts[number[before], number[after]] = count
    n_entities = counts[scheme._borders()[1][:-1, :-1]].sum()
    left = np.where(scheme._goes_on, 0, counts)
    broken = {BEGIN: left[:, ~scheme.may_begin].sum(), END: left[~scheme.may_end].sum()}
    return tuple(rule for rule, count in broken.items() if count > LARGEST_SHARE * n_entities)


def entity_f1(predicted: np.ndarray, true: np.ndarray) -> float:
    """F1 over two lists of `TagScheme.entities`, (n, 3) and (m, 3); 0 if there are none."""
    both = len(predicted) + len(true)
    common = both - len(np.unique(np.concatenate([predicted, true]), axis=0))
    return 2 * common / both if both else 0.0
