"""Attention heads as parsers without parameters: the word that a head attends to most is its guess of the syntactic
head.

A guess is read in both directions: the head that a word attends to most, and the word that attends to it most, never
itself. The antecedent of a pronoun is guessed among the nouns before it. The best head and direction, and the best
offset for the baseline, are chosen on every other document and scored on the rest. Source: Clark et al. 2019,
arXiv:1906.04341, sections 4.2 and 4.4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import INPUT_OUTPUT, LabelledViewSettings, View, ViewOutput, option
from mini_tf.inspection._gold import LabelledDocument, labelled_documents, with_random_weights, word_attention
from mini_tf.inspection._heads import HeadIndex
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

NEEDED, OPTIONAL = ("heads", "relations"), ("antecedents", "tags")
NOUN = "noun"
"""The tag of the candidates for an antecedent."""
ALL, ANTECEDENT = "all", "antecedent"
"""Every word with a head; every pronoun."""
DIRECTIONS = ("to", "from")
"""The word that a word attends to most; the word that attends to it most."""
OFFSETS = tuple(offset for offset in range(-10, 11) if offset)
NEAREST = "nearest"
_CHOSEN, _SCORED = 0, 1


class Targets(NamedTuple):
    """The words of a document that have a label, by index, and the index of each one's gold head or antecedent.

    candidates (words, W): the words that may be guessed; None: every other one.
    """

    words: np.ndarray
    gold: np.ndarray
    candidates: np.ndarray | None = None


def targets_of(document: LabelledDocument, shuffled: bool = False) -> dict[str, Targets]:
    """By relation, with ALL and ANTECEDENT. shuffled: heads exchanged within the document, antecedents drawn anew."""
    random = np.random.default_rng(list(document.text.encode()))
    heads, relations = np.array(document.indices("heads")), np.array(document.labels["relations"])
    words = np.flatnonzero(heads >= 0)
    gold = random.permutation(heads[words]) if shuffled else heads[words]
    targets = {
        str(name): Targets(words[chosen], gold[chosen])
        for name in [*dict.fromkeys(relations[words])]
        if (chosen := relations[words] == name).any()
    }
    targets[ALL] = Targets(words, gold)
    if {*OPTIONAL} <= document.labels.keys():
        antecedents = np.array(document.indices("antecedents"))
        pronouns = np.flatnonzero(antecedents >= 0)
        is_noun = np.array(document.labels["tags"]) == NOUN
        earlier = is_noun & (np.arange(len(is_noun)) < pronouns[:, None])
        gold = antecedents[pronouns]
        if shuffled:
            gold = np.array([random.choice(np.flatnonzero(row)) for row in earlier], int)
        targets[ANTECEDENT] = Targets(pronouns, gold, earlier)
    return {name: relation_targets for name, relation_targets in targets.items() if len(relation_targets.words)}


def within(targets: Targets, n_words: int) -> Targets:
    """Without words beyond the model's context."""
    kept = (targets.words < n_words) & (targets.gold < n_words)
    candidates = None if targets.candidates is None else targets.candidates[kept, :n_words]
    return Targets(targets.words[kept], targets.gold[kept], candidates)


def guesses(attention: np.ndarray, targets: Targets) -> np.ndarray:
    """(heads * 2, words): the guess for each word, by head and direction; -1 if no word may be attended to.

    attention (heads, W, W): -1 where the mask forbids it.
    """
    directions = [weights[:, targets.words] for weights in (attention, attention.swapaxes(1, 2))]
    both = np.stack(directions, axis=1)  # (heads, 2, words, W)
    itself = np.arange(attention.shape[1]) == targets.words[:, None]
    both = np.where(itself if targets.candidates is None else itself | ~targets.candidates, -1.0, both)
    guessed = np.where(both.max(axis=-1) < 0, -1, both.argmax(axis=-1))
    return np.asarray(guessed.reshape(-1, len(targets.words)))


def baseline_guesses(targets: Targets) -> np.ndarray:
    """(offsets, words): the word at a fixed distance; of candidates the nearest alone."""
    if targets.candidates is None:
        return np.asarray(targets.words + np.array(OFFSETS)[:, None])
    n = targets.candidates.shape[1]
    return np.asarray(n - 1 - targets.candidates[:, ::-1].argmax(axis=1))[None]


class Best(NamedTuple):
    """The guesser that was chosen, by index; its accuracy on the other documents, and their number of words."""

    guesser: int
    accuracy: float
    n: int


@dataclass
class Tally:
    """Correct guesses of every guesser by relation, of the documents for choosing and of those for scoring."""

    correct: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    n: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, name: str, document: int, guessed: np.ndarray, gold: np.ndarray) -> None:
        """The guesses (guessers, words) for the document with this number."""
        key = name, document % 2
        self.correct[key] = self.correct.get(key, 0) + (guessed == gold).sum(axis=1)
        self.n[key] = self.n.get(key, 0) + len(gold)

    @property
    def names(self) -> list[str]:
        """Relations that can be chosen for and scored."""
        return [name for name, half in self.n if half == _CHOSEN and self.n.get((name, _SCORED), 0)]

    def best(self, name: str) -> Best:
        index = int(self.correct[name, _CHOSEN].argmax())
        n = self.n[name, _SCORED]
        return Best(index, float(self.correct[name, _SCORED][index] / n), n)


@dataclass
class Comparison:
    """heads: of the model; baseline: offsets, or the nearest noun; random: of the model with random weights; shuffled:
    of the model, with shuffled labels.
    """

    heads: Tally = field(default_factory=Tally)
    baseline: Tally = field(default_factory=Tally)
    random: Tally = field(default_factory=Tally)
    shuffled: Tally = field(default_factory=Tally)

    def add(self, number: int, document: LabelledDocument, attention: np.ndarray, control: np.ndarray) -> None:
        """attention, control (heads, W, W): of the model, and of the one with random weights."""
        for name, targets in _both(document, attention.shape[1], shuffled=False):
            self.heads.add(name, number, guesses(attention, targets), targets.gold)
            self.random.add(name, number, guesses(control, targets), targets.gold)
            self.baseline.add(name, number, baseline_guesses(targets), targets.gold)
        for name, targets in _both(document, attention.shape[1], shuffled=True):
            self.shuffled.add(name, number, guesses(attention, targets), targets.gold)

    def relations(self) -> Sequence[str]:
        """The most frequent first, then ALL and ANTECEDENT."""
        names = [name for name in self.heads.names if name in self.shuffled.names]
        return sorted(names, key=lambda name: (name == ANTECEDENT, name == ALL, -self.heads.best(name).n, name))


def _both(document: LabelledDocument, n_words: int, shuffled: bool) -> Iterator[tuple[str, Targets]]:
    for name, targets in targets_of(document, shuffled).items():
        if len((kept := within(targets, n_words)).words):
            yield name, kept


HEADERS = ("relation", "words", "best head", "accuracy", "baseline", "by", "random", "shuffled")
LEGEND = (
    "accuracy: share of the words whose syntactic head is the word that they attend to most (to), or that attends to"
    " them most (from); baseline: the word at the best fixed offset, for antecedents the nearest noun; random: the best"
    " head before training; shuffled: with shuffled labels. Chosen on every other document, scored on the rest."
)


class Settings(LabelledViewSettings):
    """Compare attention heads with gold syntax: which head finds the object of a verb, the antecedent of a pronoun?

    The documents have the columns text, heads (indices of words from 0, -1 for a root) and relations, and for pronouns
    antecedents and tags. Prints the accuracy of the best head for each relation, of the best fixed offset, and two
    controls: random weights and shuffled labels. Encoder-decoder: the encoder is used.
    """

    ALIASES = ("dependencies", "grammar")
    EXAMPLES = ("minitf inspect syntax last --data world",)

    limit: int = option(50, "--limit", metavar="N", panel=INPUT_OUTPUT, ge=2)
    """Only the first N documents."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        return self.of_documents(trained, labelled_documents(trained, self.data, NEEDED, OPTIONAL, self.limit))

    def of_documents(self, trained: Trained, documents: Sequence[LabelledDocument]) -> View:
        """Raises UsageFault if there are fewer than two documents, or no relation is in both halves."""
        if len(documents) < 2:
            halves = "one half chooses the heads, the other scores them"
            raise UsageFault(f"2 or more documents are needed, got {len(documents)}; {halves}")
        control, comparison, n_cut = with_random_weights(trained), Comparison(), 0
        heads: list[HeadIndex] = []
        for number, document in enumerate(documents):
            heads, attention = word_attention(trained, document.text)
            n_cut += attention.shape[1] < len(document.words)
            comparison.add(number, document, attention.numpy(), word_attention(control, document.text)[1].numpy())
        records = [_record(name, comparison, heads) for name in comparison.relations()]
        if not records:
            raise UsageFault("no relation occurs in two of the documents", hint="give more documents: --limit N")
        cut = f"{n_cut} of {len(documents)} documents are longer than the model's context and are truncated"
        notes = [cut] if n_cut else []
        rows = [[record["relation"], record["words"], _name(record), *[*record.values()][6:]] for record in records]
        result = {"documents": len(documents), "relations": records, "notes": notes}
        pictures = [partial(table, HEADERS, rows), partial(sentence, LEGEND)]
        return View(result, pictures, [f"note: {note}" for note in notes])


def _record(name: str, comparison: Comparison, heads: Sequence[HeadIndex]) -> dict[str, Any]:
    best, baseline = comparison.heads.best(name), comparison.baseline.best(name)
    head, direction = heads[best.guesser // len(DIRECTIONS)], DIRECTIONS[best.guesser % len(DIRECTIONS)]
    record = {"relation": name, "words": best.n, **head._asdict(), "direction": direction, "accuracy": best.accuracy}
    return record | {
        "baseline": baseline.accuracy,
        "by": NEAREST if name == ANTECEDENT else f"{OFFSETS[baseline.guesser]:+d}",
        "random": comparison.random.best(name).accuracy,
        "shuffled": comparison.shuffled.best(name).accuracy,
    }


def _name(record: dict[str, Any]) -> str:
    return f"L{record['layer']} H{record['head']} {record['direction']}"
