"""The rules of tags that mark entities (IOB1, IOB2, IOE, IOBES, BILOU, BMES, alone or mixed): which may follow which.

Any sequence of tags has entities, those of conlleval.pl of CoNLL-2000; a legal one writes each of them in one way only.
Sources: Ramshaw and Marcus 1995 (IOB1); Tjong Kim Sang and Veenstra 1999 (IOB2, IOE); Ratinov and Roth 2009 (BILOU).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.scores.entities import iobes

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
        mark, types = np.array([part[0] for part in parts]), [part[2] for part in parts]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(part[2] for part in parts if part[0] != OUTSIDE))}
        of_type = np.array([-1 if one == OUTSIDE else numbers[name] for one, name in zip(mark, types, strict=True)])
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


def entity_f1(found: np.ndarray, true: np.ndarray) -> float:
    """F1 over two lists of `TagScheme.entities`, (n, 3) and (m, 3); 0 if there are none."""
    both = len(found) + len(true)
    common = both - len(np.unique(np.concatenate([found, true]), axis=0))
    return 2 * common / both if both else 0.0
