"""The built-in corpus `translate-toy`: artificial translations with gold word alignments, from a synchronous grammar.

The source resembles English; the target is an invented language with a very different word order:

    the wise king of a sailor did not follow these birds near the river today
    hodi una numis tovar veta vadon apud hiton tesunen sekve ne ta

Time comes first and the verb last, behind phrases of any length (today, follow); owners, relative clauses and
adjectives are on the other side of their noun (of a sailor, wise), prepositions on the other side of their phrase (near
the river). The form of a word depends on distant words: adjectives and determiners agree with the number of their noun
and with a gender that only the target's noun has; verbs with person and number of a subject, which the source's verb
often does not show ("did follow", "will follow"). "the", "of", "that", "do" and "does" are not aligned; every other
word is aligned with one word.

The diagonal alignment has an alignment error rate (AER) of 0.89.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from mini_tf.data.corpora._lexicon import Sampler
from mini_tf.recipe.corpora import CorpusSettings

N_PAIRS = 8_000
MAX_WORDS = 16
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
ADJECTIVES = {
    "wise": "vet",
    "young": "nov",
    "small": "pik",
    "big": "mag",
    "tired": "laz",
    "happy": "gel",
    "white": "alb",
    "black": "mur",
}
DETERMINERS = {"the": ("the", "the", ""), "a": ("a", "some", "un"), "this": ("this", "these", "hit")}
"""Singular, plural, and the target's stem; "the" has no translation."""
PRONOUNS = {"i": "jo", "we": "joren", "he": "ser", "she": "sal", "they": "seren"}
TRANSITIVE = {"follow": "sekv", "paint": "malg", "need": "brod", "remember": "rimen", "visit": "zetil", "guard": "skud"}
INTRANSITIVE = {"wait": "kosh", "laugh": "rizit", "listen": "uskol", "work": "labar"}
VERBS = TRANSITIVE | INTRANSITIVE
PREPOSITIONS = {"near": "apud", "behind": "retor", "under": "subir", "beside": "lador", "beyond": "ultar"}
MANNERS = {"slowly": "lentim", "quietly": "tacim", "gladly": "lubim", "badly": "prabim"}
TIMES = {"today": "hodi", "tonight": "nokti", "again": "rusi", "often": "safi", "daily": "dagi", "later": "posti"}

PLURAL = "en"
"""Plural ending of the target's nouns."""
AGREEMENT = (("a", "an"), ("o", "on"), ("i", "in"))
"""Endings (singular, plural) of adjectives and determiners, by gender."""
PERSON = {(True, False): "u", (True, True): "um", (False, False): "e", (False, True): "em"}
"""Endings of verbs, by whether the subject is (first person, plural)."""


class AlignedPair(NamedTuple):
    """A sentence, its translation and their word alignment: links (source word, target word), from 0."""

    source: str
    target: str
    links: tuple[tuple[int, int], ...]

    @property
    def alignment(self) -> str:
        """The links in the Pharaoh format: 0-2 1-0."""
        return " ".join(f"{i}-{j}" for i, j in self.links)


class NounPhrase(NamedTuple):
    """A noun phrase, or a pronoun alone, independent of the language."""

    noun: str
    plural: bool
    determiner: str = "the"
    adjective: str = ""
    owner: "NounPhrase | None" = None
    clause: "VerbPhrase | None" = None
    """The relative clause, whose subject this is."""


class VerbPhrase(NamedTuple):
    """A verb with its object, without its subject."""

    verb: str
    object: NounPhrase | None
    tense: str = "present"
    negated: bool = False


class ToySentence(NamedTuple):
    """A sentence, independent of the language; "" and None are absent parts."""

    subject: NounPhrase
    verb_phrase: VerbPhrase
    manner: str = ""
    place: tuple[str, NounPhrase] | None = None
    time: str = ""


class Phrase(NamedTuple):
    """Words in both languages; each target word with the index of its aligned word in `source`."""

    source: tuple[str, ...] = ()
    target: tuple[tuple[str, int], ...] = ()


EMPTY = Phrase()


def _word(source: str, target: str = "") -> Phrase:
    """One word and its translation, if it has one."""
    return Phrase((source,), ((target, 0),) if target else ())


def _lookup(source: str, stems: dict[str, str], ending: str = "") -> Phrase:
    """A word of a table; empty if `source` is ""."""
    return _word(source, stems[source] + ending) if source else EMPTY


def _join(phrases: Sequence[Phrase], order: Sequence[int]) -> Phrase:
    """The phrases concatenated in the source, and reordered by `order` in the target."""
    starts = list(accumulate((len(phrase.source) for phrase in phrases), initial=0))
    target = [(word, starts[n] + at) for n in order for word, at in phrases[n].target]
    return Phrase(tuple(word for phrase in phrases for word in phrase.source), tuple(target))


def _noun_phrase(phrase: NounPhrase) -> Phrase:
    """The wise king of a sailor -> of a sailor, the, king, wise."""
    if phrase.noun in PRONOUNS:
        return _lookup(phrase.noun, PRONOUNS)
    stem, gender = NOUNS[phrase.noun]
    ending = AGREEMENT[gender][phrase.plural]
    *forms, determiner = DETERMINERS[phrase.determiner]
    modifier = EMPTY
    if phrase.owner:
        modifier = _join([_word("of"), _noun_phrase(phrase.owner)], (0, 1))
    elif phrase.clause:
        modifier = _join([_word("that"), *_verb_phrase(phrase.clause, phrase)], (4, 3, 2, 1))
    parts = (
        _word(forms[phrase.plural], determiner + ending if determiner else ""),
        _lookup(phrase.adjective, ADJECTIVES, ending),
        _word(phrase.noun + "s", stem + PLURAL) if phrase.plural else _word(phrase.noun, stem),
        modifier,
    )
    return _join(parts, (3, 0, 2, 1))


def _verb_phrase(phrase: VerbPhrase, subject: NounPhrase) -> tuple[Phrase, Phrase, Phrase, Phrase]:
    """Auxiliary, negation, verb and object; the target has them in reverse order."""
    first = subject.noun in ("i", "we")
    third_singular = not first and not subject.plural
    auxiliary, verb = EMPTY, phrase.verb
    translated = VERBS[verb] + PERSON[first, subject.plural]
    if phrase.tense == "future":
        auxiliary = _word("will", "vel")
    elif phrase.tense == "past":
        auxiliary = _word("did", "ta")
    elif phrase.negated:
        auxiliary = _word("does" if third_singular else "do")
    elif third_singular:
        verb += "s"
    object_phrase = EMPTY if phrase.object is None else _noun_phrase(phrase.object)
    return auxiliary, _word("not", "ne") if phrase.negated else EMPTY, _word(verb, translated), object_phrase


def render(sentence: ToySentence) -> AlignedPair:
    """A sentence in both languages."""
    place = EMPTY
    if sentence.place:
        preposition, where = sentence.place
        place = _join([_lookup(preposition, PREPOSITIONS), _noun_phrase(where)], (1, 0))
    manner, time = _lookup(sentence.manner, MANNERS), _lookup(sentence.time, TIMES)
    parts = [_noun_phrase(sentence.subject), *_verb_phrase(sentence.verb_phrase, sentence.subject), manner, place, time]
    whole = _join(parts, (7, 0, 6, 4, 5, 3, 2, 1))
    links = sorted((i, j) for j, (_, i) in enumerate(whole.target))
    return AlignedPair(" ".join(whole.source), " ".join(word for word, _ in whole.target), tuple(links))


def _draw_noun_phrase(sampler: Sampler, nouns: Sequence[str], modified: bool = False) -> NounPhrase:
    """`modified`: it may have an owner (then its determiner is "the") or, for a being, a relative clause."""
    noun, plural = sampler.pick(nouns), sampler.chance(50)
    determiner = sampler.pick(("the", "the", "a", "this"))
    drawn = NounPhrase(noun, plural, determiner, sampler.pick(tuple(ADJECTIVES)) if sampler.chance(50) else "")
    if modified and sampler.chance(20):
        return drawn._replace(determiner="the", owner=_draw_noun_phrase(sampler, tuple(BEINGS)))
    if modified and noun in BEINGS and sampler.chance(20):
        object_phrase = _draw_noun_phrase(sampler, tuple(NOUNS))
        verb, tense = sampler.pick(tuple(TRANSITIVE)), sampler.pick(("present", "past"))
        return drawn._replace(clause=VerbPhrase(verb, object_phrase, tense))
    return drawn


def sentences(seed: int) -> Iterator[ToySentence]:
    """An endless iterator of random sentences; a seed gives the same ones on every machine."""
    sampler = Sampler(seed)
    while True:
        if sampler.chance(50):
            pronoun = sampler.pick(("i", "i", "i", "we", "we", "we", "he", "she", "they"))
            subject = NounPhrase(pronoun, plural=pronoun in ("we", "they"))
        else:
            subject = _draw_noun_phrase(sampler, tuple(BEINGS), modified=True)
        object_phrase = _draw_noun_phrase(sampler, tuple(NOUNS), modified=True) if sampler.chance(55) else None
        tense = sampler.pick(("present", "present", "past", "future"))
        verb = sampler.pick(tuple(TRANSITIVE if object_phrase else INTRANSITIVE))
        verb_phrase = VerbPhrase(verb, object_phrase, tense, negated=sampler.chance(25))
        manner = sampler.pick(tuple(MANNERS)) if sampler.chance(30) else ""
        place = None
        if sampler.chance(50):
            place = sampler.pick(tuple(PREPOSITIONS)), _draw_noun_phrase(sampler, tuple(THINGS), modified=True)
        yield ToySentence(subject, verb_phrase, manner, place, sampler.pick(tuple(TIMES)) if sampler.chance(60) else "")


def pairs(seed: int = 0) -> Iterator[AlignedPair]:
    """An endless iterator of pairs with distinct sources of at most MAX_WORDS words."""
    seen = set()
    for pair in map(render, sentences(seed)):
        if pair.source not in seen and pair.source.count(" ") < MAX_WORDS:
            seen.add(pair.source)
            yield pair


class Settings(CorpusSettings):
    VERSION, COLUMNS = "2", ("source", "target", "alignment")

    def rows(self) -> Iterator[dict[str, str]]:
        return ({name: getattr(pair, name) for name in self.COLUMNS} for pair in islice(pairs(), N_PAIRS))
