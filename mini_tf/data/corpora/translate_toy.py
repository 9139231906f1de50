"""A made-up translation task whose alignments are known: a grammar that says each sentence in two languages at once.

The source looks like English; the target is invented, and nearly everything stands elsewhere in it:

    the wise king of a sailor did not follow these birds near the river today
    hodi una numis tovar veta vadon apud hiton tesunen sekve ne ta

Time comes first and the verb last, behind phrases of any length (today, follow); owners, relative clauses and adjectives
change sides with their noun (of a sailor, wise), prepositions with their phrase (near the river). What a word must be
depends on words elsewhere: adjectives and determiners agree with a gender that only the target's noun has, and with its
number; verbs with person and number of a subject that the source's verb often hides ("did follow", "will follow").
"the", "of", "that", "do" and "does" have no partner; every other word has one.

Linking along the diagonal has an alignment error rate of 0.89.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple, TypeVar

import numpy as np

from mini_tf.recipe.corpora import CorpusSettings

N_PAIRS = 8_000
LONGEST = 16
"""Words of a source."""

PERSONS = {
    "king": ("tovar", 0),
    "farmer": ("belud", 1),
    "sailor": ("numis", 0),
    "teacher": ("karem", 2),
    "doctor": ("olvit", 1),
    "singer": ("fesal", 2),
    "girl": ("ridok", 0),
    "boy": ("zanul", 2),
}
"""The target's stem and gender."""
ANIMALS = {"dog": ("hupel", 2), "cat": ("mirog", 0), "horse": ("galim", 1), "bird": ("tesun", 1)}
THINGS = {
    "river": ("vadon", 1),
    "house": ("kesob", 2),
    "garden": ("lirut", 0),
    "bridge": ("ponag", 1),
    "tower": ("sutem", 0),
    "boat": ("navil", 1),
    "tree": ("dorek", 2),
    "road": ("pelis", 2),
    "hill": ("bagun", 0),
    "market": ("merod", 1),
    "school": ("ikal", 2),
    "lake": ("wesum", 0),
}
BEINGS = PERSONS | ANIMALS
NOUNS = BEINGS | THINGS
ADJECTIVES = {"wise": "vet", "young": "nov", "small": "pik", "big": "mag", "tired": "laz", "happy": "gel", "white": "alb", "black": "mur"}
DETERMINERS = {"the": ("the", "the", ""), "a": ("a", "some", "un"), "this": ("this", "these", "hit")}
"""In the singular, in the plural, and the target's stem: it has no word for "the"."""
PRONOUNS = {"i": "jo", "we": "joren", "he": "ser", "she": "sal", "they": "seren"}
TRANSITIVE = {"follow": "sekv", "paint": "malg", "need": "brod", "remember": "rimen", "visit": "zetil", "guard": "skud"}
INTRANSITIVE = {"wait": "kosh", "laugh": "rizit", "listen": "uskol", "work": "labar"}
VERBS = TRANSITIVE | INTRANSITIVE
PREPOSITIONS = {"near": "apud", "behind": "retor", "under": "subir", "beside": "lador", "beyond": "ultar"}
MANNERS = {"slowly": "lentim", "quietly": "tacim", "gladly": "lubim", "badly": "prabim"}
TIMES = {"today": "hodi", "tonight": "nokti", "again": "rusi", "often": "safi", "daily": "dagi", "later": "posti"}

PLURAL = "en"
"""Of the target's nouns."""
AGREEMENT = (("a", "an"), ("o", "on"), ("i", "in"))
"""Endings of adjectives and determiners: of each gender, the singular's and the plural's."""
PERSON = {(True, False): "u", (True, True): "um", (False, False): "e", (False, True): "em"}
"""Endings of verbs, whose subject is (the first person, plural)."""

T = TypeVar("T")


class Pair(NamedTuple):
    """A sentence and its translation; a link is (source word, target word), counted from 0 by the blanks."""

    source: str
    target: str
    links: tuple[tuple[int, int], ...]

    @property
    def alignment(self) -> str:
        """The links as Pharaoh writes them: 0-2 1-0."""
        return " ".join(f"{i}-{j}" for i, j in self.links)


class NounPhrase(NamedTuple):
    """What a noun phrase says in either language, or a pronoun alone."""

    noun: str
    plural: bool
    determiner: str = "the"
    adjective: str = ""
    owner: "NounPhrase | None" = None
    deed: "Deed | None" = None
    """The relative clause, whose subject this is."""


class Deed(NamedTuple):
    """A verb with all but its subject."""

    verb: str
    object: NounPhrase | None
    tense: str = "present"
    negated: bool = False


class Sentence(NamedTuple):
    """What a sentence says in either language; "" and None are not said."""

    subject: NounPhrase
    deed: Deed
    manner: str = ""
    place: tuple[str, NounPhrase] | None = None
    time: str = ""


class Phrase(NamedTuple):
    """Words in both languages; each of the target's with the place of its partner in `source`."""

    source: tuple[str, ...] = ()
    target: tuple[tuple[str, int], ...] = ()


NOTHING = Phrase()


def _word(source: str, target: str = "") -> Phrase:
    """One word, and the word that it becomes, if it becomes one."""
    return Phrase((source,), ((target, 0),) if target else ())


def _listed(source: str, stems: dict[str, str], ending: str = "") -> Phrase:
    """A word of a table, or nothing if it is not said."""
    return _word(source, stems[source] + ending) if source else NOTHING


def _joined(phrases: Sequence[Phrase], order: Sequence[int]) -> Phrase:
    """The phrases one after another in the source, in this order in the target: all the reordering there is."""
    starts = list(accumulate((len(phrase.source) for phrase in phrases), initial=0))
    moved = [(word, starts[n] + at) for n in order for word, at in phrases[n].target]
    return Phrase(tuple(word for phrase in phrases for word in phrase.source), tuple(moved))


def _noun_phrase(said: NounPhrase) -> Phrase:
    """The wise king of a sailor: of a sailor, the, king, wise."""
    if said.noun in PRONOUNS:
        return _listed(said.noun, PRONOUNS)
    stem, gender = NOUNS[said.noun]
    ending = AGREEMENT[gender][said.plural]
    *forms, determiner = DETERMINERS[said.determiner]
    modifier = NOTHING
    if said.owner:
        modifier = _joined([_word("of"), _noun_phrase(said.owner)], (0, 1))
    elif said.deed:
        modifier = _joined([_word("that"), *_deed(said.deed, said)], (4, 3, 2, 1))
    parts = (
        _word(forms[said.plural], determiner + ending if determiner else ""),
        _listed(said.adjective, ADJECTIVES, ending),
        _word(said.noun + "s", stem + PLURAL) if said.plural else _word(said.noun, stem),
        modifier,
    )
    return _joined(parts, (3, 0, 2, 1))


def _deed(said: Deed, subject: NounPhrase) -> tuple[Phrase, Phrase, Phrase, Phrase]:
    """Will, not, follow and whom; they come in the opposite order in the target."""
    first = subject.noun in ("i", "we")
    third_singular = not first and not subject.plural
    auxiliary, verb = NOTHING, said.verb
    translated = VERBS[verb] + PERSON[first, subject.plural]
    if said.tense == "future":
        auxiliary = _word("will", "vel")
    elif said.tense == "past":
        auxiliary = _word("did", "ta")
    elif said.negated:
        auxiliary = _word("does" if third_singular else "do")
    elif third_singular:
        verb += "s"
    whom = NOTHING if said.object is None else _noun_phrase(said.object)
    return auxiliary, _word("not", "ne") if said.negated else NOTHING, _word(verb, translated), whom


def said(sentence: Sentence) -> Pair:
    """A sentence in both languages."""
    place = NOTHING
    if sentence.place:
        preposition, where = sentence.place
        place = _joined([_listed(preposition, PREPOSITIONS), _noun_phrase(where)], (1, 0))
    manner, time = _listed(sentence.manner, MANNERS), _listed(sentence.time, TIMES)
    parts = [_noun_phrase(sentence.subject), *_deed(sentence.deed, sentence.subject), manner, place, time]
    whole = _joined(parts, (7, 0, 6, 4, 5, 3, 2, 1))
    links = sorted((i, j) for j, (_, i) in enumerate(whole.target))
    return Pair(" ".join(whole.source), " ".join(word for word, _ in whole.target), tuple(links))


class _Dice:
    """Draws from Philox's raw numbers, which are the same in every version of numpy."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._bits.random_raw()) % len(options)]

    def chance(self, percent: int) -> bool:
        return int(self._bits.random_raw()) % 100 < percent


def _draw_noun_phrase(dice: _Dice, nouns: Sequence[str], modified: bool = False) -> NounPhrase:
    """`modified`: it may have an owner (and is "the" then) or, as a being, a relative clause; they are not modified in turn."""
    noun, plural = dice.pick(nouns), dice.chance(50)
    determiner = dice.pick(("the", "the", "a", "this"))
    drawn = NounPhrase(noun, plural, determiner, dice.pick(tuple(ADJECTIVES)) if dice.chance(50) else "")
    if modified and dice.chance(20):
        return drawn._replace(determiner="the", owner=_draw_noun_phrase(dice, tuple(BEINGS)))
    if modified and noun in BEINGS and dice.chance(20):
        whom = _draw_noun_phrase(dice, tuple(NOUNS))
        return drawn._replace(deed=Deed(dice.pick(tuple(TRANSITIVE)), whom, dice.pick(("present", "past"))))
    return drawn


def sentences(seed: int) -> Iterator[Sentence]:
    """What may be said, drawn without end; the same for the same seed on every machine."""
    dice = _Dice(seed)
    while True:
        if dice.chance(50):
            pronoun = dice.pick(("i", "i", "i", "we", "we", "we", "he", "she", "they"))
            subject = NounPhrase(pronoun, plural=pronoun in ("we", "they"))
        else:
            subject = _draw_noun_phrase(dice, tuple(BEINGS), modified=True)
        whom = _draw_noun_phrase(dice, tuple(NOUNS), modified=True) if dice.chance(55) else None
        tense = dice.pick(("present", "present", "past", "future"))
        deed = Deed(dice.pick(tuple(TRANSITIVE if whom else INTRANSITIVE)), whom, tense, negated=dice.chance(25))
        manner = dice.pick(tuple(MANNERS)) if dice.chance(30) else ""
        place = (dice.pick(tuple(PREPOSITIONS)), _draw_noun_phrase(dice, tuple(THINGS), modified=True)) if dice.chance(50) else None
        yield Sentence(subject, deed, manner, place, dice.pick(tuple(TIMES)) if dice.chance(60) else "")


def pairs(seed: int = 0) -> Iterator[Pair]:
    """Pairs without end, no source twice and none longer than LONGEST."""
    seen = set()
    for pair in map(said, sentences(seed)):
        if pair.source not in seen and pair.source.count(" ") < LONGEST:
            seen.add(pair.source)
            yield pair


class Settings(CorpusSettings):
    VERSION, COLUMNS = "2", ("source", "target", "alignment")

    def rows(self) -> Iterator[dict[str, str]]:
        return ({name: getattr(pair, name) for name in self.COLUMNS} for pair in islice(pairs(), N_PAIRS))
