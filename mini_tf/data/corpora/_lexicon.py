"""The words of the synthetic world, and the settings of the corpora that are made of them.

An invented stem has a supersense, a gender, a topic, a translation, and maybe homonyms.

A word's place decides its frequency: among the nouns of one supersense and topic, the verbs of one frame and the
adjectives of one supersense, the word of rank r has a probability proportional to r^-zipf. The lexicon depends on its
sizes only, never on the seed of a corpus, so another seed gives other documents of the same language.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice, product
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kinds import Rules
from mini_tf.system.errors import DataFault

T = TypeVar("T")


class Sampler:
    """Draws from the raw numbers of Philox, which are the same in every version of numpy."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._bits.random_raw()) % len(options)]

    def chance(self, percent: int) -> bool:
        return int(self._bits.random_raw()) % 100 < percent

    def pick_by_rank(self, options: Sequence[T], exponent: float) -> T:
        """An option with a probability proportional to rank^-exponent; the first has rank 1."""
        ends = _cumulative_weights(len(options), exponent)
        return options[bisect_right(ends, int(self._bits.random_raw()) % ends[-1])]

    def shuffle(self, options: Sequence[T]) -> list[T]:
        """A random order (Fisher-Yates)."""
        shuffled = list(options)
        for n in range(len(shuffled) - 1, 0, -1):
            other = int(self._bits.random_raw()) % (n + 1)
            shuffled[n], shuffled[other] = shuffled[other], shuffled[n]
        return shuffled


@cache
def _cumulative_weights(n: int, exponent: float) -> list[int]:
    """Whole numbers: the last bit of a power differs between machines."""
    return list(accumulate(max(1, round(rank**-exponent * 2**40)) for rank in range(1, n + 1)))


SUPERSENSES = ("person", "animal", "place", "tool", "food")
FRAMES = {
    "person": ("", "person", "animal", "place", "tool", "food"),
    "animal": ("", "person", "animal", "food"),
    "place": ("", "person"),
    "tool": ("", "tool", "food"),
    "food": ("", "person"),
}
"""The supersenses of a verb's object, by that of its subject; "" is an intransitive verb."""
N_CUES = 16
N_NAMES = 24
SHARES = {"noun": 0.6, "verb": 0.25, "adj": 0.15}
"""Shares of the lexemes."""
MIN_LEXEMES = 200

_LEXICON_SEED = 21
_CONSONANTS, _VOWELS = "bdfgklmnprtvz", "aeiou"
_ENDINGS = ("", "k", "l", "m", "n", "r")
"""No stem ends in s or d, so no stem is an inflected form of another."""


class Lexeme(NamedTuple):
    """A word in one sense, with its inflected forms made from `stem`.

    target: stem of its translation. supersense: of a noun, of the nouns that an adjective describes, or of a verb's
    subject. gender: m, f or n, of a noun. object: supersense of a verb's object. sense: from 1 for each sense of a
    homonym, else 0.
    """

    stem: str
    target: str
    tag: str
    supersense: str
    gender: str = ""
    topic: int = 0
    object: str = ""
    sense: int = 0


@dataclass(frozen=True)
class Lexicon:
    """Words by what selects them, in the order of their ranks.

    nouns: by supersense and topic; verbs: by the supersenses of subject and object; adjectives: by supersense. cues:
    pairs of a cue and the word that it decides. names: of the persons in fact lists.
    """

    nouns: Mapping[tuple[str, int], tuple[Lexeme, ...]]
    verbs: Mapping[tuple[str, str], tuple[Lexeme, ...]]
    adjectives: Mapping[str, tuple[Lexeme, ...]]
    cues: tuple[tuple[str, str], ...]
    names: tuple[str, ...]

    @property
    def n_topics(self) -> int:
        return 1 + max(topic for _, topic in self.nouns)

    def lexemes(self) -> Iterator[Lexeme]:
        """Every lexeme; a homonym has one for each sense."""
        for table in (self.nouns, self.verbs, self.adjectives):
            for words in table.values():
                yield from words


@cache
def lexicon(n_lexemes: int, n_topics: int, homonym_rate: float) -> Lexicon:
    """The lexicon of these sizes. homonym_rate: share of the nouns whose form other nouns have too."""
    sampler = Sampler(_LEXICON_SEED)
    syllables = [c + v for c, v in product(_CONSONANTS, _VOWELS)]
    stems = iter(sampler.shuffle(["".join(parts) for parts in product(syllables, syllables, _ENDINGS)]))
    targets = iter(sampler.shuffle([v + "".join(parts) for v, *parts in product(_VOWELS, syllables, syllables)]))
    others = list(islice(stems, 2 * N_CUES + N_NAMES))  # first, so that they are the same for all sizes

    def new(tag: str, supersense: str, gender: str = "", topic: int = 0, object: str = "") -> Lexeme:
        return Lexeme(next(stems), next(targets), tag, supersense, gender, topic, object)

    def size(tag: str, n_groups: int) -> int:
        return max(1, int(n_lexemes * SHARES[tag]) // n_groups)

    frames = [(subject, object) for subject, objects in FRAMES.items() for object in objects]
    per_noun, per_verb = size("noun", len(SUPERSENSES) * n_topics), size("verb", len(frames))
    nouns = {
        (kind, topic): [new("noun", kind, _gender(kind, rank), topic) for rank in range(per_noun)]
        for topic in range(n_topics)
        for kind in SUPERSENSES
    }
    verbs = {
        (subject, object): tuple(new("verb", subject, object=object) for _ in range(per_verb))
        for subject, object in frames
    }
    adjectives = {kind: tuple(new("adj", kind) for _ in range(size("adj", len(SUPERSENSES)))) for kind in SUPERSENSES}
    _share_forms(nouns, int(homonym_rate * per_noun * len(nouns)), sampler)
    cues = tuple(zip(others[:N_CUES], others[N_CUES : 2 * N_CUES], strict=True))
    final_nouns = {place: tuple(words) for place, words in nouns.items()}
    return Lexicon(final_nouns, verbs, adjectives, cues, tuple(others[2 * N_CUES :]))


def _gender(supersense: str, rank: int) -> str:
    return "mf"[rank % 2] if supersense in ("person", "animal") else "n"


def _share_forms(nouns: dict[tuple[str, int], list[Lexeme]], n: int, sampler: Sampler) -> None:
    """Give `n` nouns forms that 2 or 3 of them share, of different supersenses; frequent nouns first."""
    per_topic = len(SUPERSENSES)
    n_topics, size = len(nouns) // per_topic, len(next(iter(nouns.values())))
    for rank in range(size):
        kinds = sampler.shuffle(SUPERSENSES)  # for all topics, so that no noun is chosen twice
        for topic in range(n_topics):
            for shared in (kinds[:2], kinds[2:]):  # of 2 senses and of 3
                if n < len(shared):
                    break
                n -= len(shared)
                # The senses have topics of their own, so the topic of a document is evidence too.
                places = [(kind, (topic + shift) % n_topics) for shift, kind in enumerate(shared)]
                stem = nouns[places[0]][rank].stem
                for sense, place in enumerate(places, 1):
                    nouns[place][rank] = nouns[place][rank]._replace(stem=stem, sense=sense)


MAX_REPEATS = 10_000
"""Documents in succession that were made before, after which no others are expected."""


class WorldSettings(CorpusSettings):
    """The lexicon depends on the last three settings only."""

    n_documents: int = Field(4000, ge=1, le=10**7)
    """Documents, or pairs."""
    seed: int = Field(0, ge=0, le=2**63)
    """Another seed gives other documents of the same language."""
    zipf: float = Field(1.0, ge=0, le=3)
    """Exponent of the word frequencies: the word of rank r has a probability proportional to r^-zipf."""
    n_lexemes: int = Field(800, ge=MIN_LEXEMES, le=10_000)
    """Words of the lexicon, without their inflected forms."""
    n_topics: int = Field(4, ge=1, le=16)
    """Topics, each with nouns of its own."""
    homonym_rate: float = Field(0.15, ge=0, le=0.5)
    """Share of the nouns whose form is also that of other nouns, of other supersenses."""

    @property
    def lexicon(self) -> Lexicon:
        return lexicon(self.n_lexemes, self.n_topics, self.homonym_rate)

    def different(self, made: Iterable[T], text: Callable[[T], str], sizes: str) -> Iterator[T]:
        """The first n_documents of `made` with different texts. sizes: settings that give more texts.

        Raises DataFault if `made` repeats itself.
        """
        seen, repeats = set[str](), 0
        for document in made:
            repeats = repeats + 1 if text(document) in seen else 0
            if repeats == 0:
                seen.add(text(document))
                yield document
            if len(seen) == self.n_documents:
                return
            if repeats == MAX_REPEATS:
                message = f"{self.word}: only {len(seen)} different documents with these settings"
                hint = f"raise {sizes}, or lower n_documents"
                raise DataFault(f"{message}; n_documents is {self.n_documents}", hint=hint)


_WORDS = sorted({lexeme.stem for lexeme in lexicon(400, 1, 0.0).lexemes()})
MAX_WORDS = 100
"""Of each list."""
SYMBOLS, KEYS, FILLERS = _WORDS[:MAX_WORDS], _WORDS[MAX_WORDS : 2 * MAX_WORDS], _WORDS[2 * MAX_WORDS : 3 * MAX_WORDS]
"""What is to be recalled; what it is recalled by; the rest."""


class StreamSettings(CorpusSettings):
    """Settings of every task on distance: a word must be recalled that stood a number of tokens earlier.

    Every word is one of a list, so a tokenizer with a token for each word makes the distance one in tokens. The column
    `answers` has the indices of the words (from 0) that can be known from earlier ones only.
    """

    VERSION, COLUMNS = "1", ("text", "answers")

    n_documents: int = Field(1000, ge=1, le=10**7)
    """Documents."""
    distance: int = Field(200, ge=2, le=10**6)
    """Words from the cue to the answer."""
    n_symbols: int = Field(8, ge=2, le=MAX_WORDS)
    """Different words that may be recalled; guessing is right with probability 1 / n_symbols."""
    n_fillers: int = Field(16, ge=1, le=MAX_WORDS)
    """Different words between the cue and the answer."""
    repeat_filler: bool = False
    """All fillers of a document are one word, so only cues and answers are hard to predict."""
    seed: int = Field(0, ge=0, le=2**63)
    """Another seed gives other documents of the same words."""

    @property
    def shortest(self) -> int:
        """The smallest distance that leaves room for the task."""
        return 2

    def rules(self) -> Rules:
        if self.distance < self.shortest:
            yield "distance", f"must be at least {self.shortest} for this task, got {self.distance}"

    def document(self, sampler: Sampler) -> tuple[list[str], Iterable[int]]:
        """The words of a document, and the indices of its answers."""
        raise NotImplementedError

    def fillers(self, sampler: Sampler, n: int) -> list[str]:
        words = FILLERS[: self.n_fillers]
        return [sampler.pick(words)] * n if self.repeat_filler else [sampler.pick(words) for _ in range(n)]

    def rows(self) -> Iterator[dict[str, str]]:
        sampler = Sampler(self.seed)
        for _ in range(self.n_documents):
            words, answers = self.document(sampler)
            yield {"text": " ".join(words), "answers": " ".join(map(str, answers))}
