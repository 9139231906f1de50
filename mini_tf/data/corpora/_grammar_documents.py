"""Documents of the synthetic world: sentences of one topic, pronouns that refer back, and a cue that decides the end.

A pronoun refers to the nearest noun of an earlier sentence that has its number and, if singular, its gender. The first
sentence names a cue; the last word before the final full stop is the one that the lexicon pairs with this cue.

Sentences are dependency trees, each word with its gold labels. Determiners and verbs in the present agree in number
with a noun that may be several words away; a verb selects the supersense of its subject and object, which decides the
sense of a homonym; relative clauses have a gap at the subject or at the object. Words follow Universal Dependencies in
spirit: relations are nsubj, obj, det, amod, poss, prep, pobj, relcl, advmod, attr, punct and root; a relative pronoun
depends on the verb of its clause.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mini_tf.data.corpora._lexicon import FRAMES, SUPERSENSES, Lexeme, Lexicon, Sampler

DETERMINERS = (("the", "the"), ("the", "the"), ("a", "some"), ("this", "these"))
"""Singular and plural."""
PREPOSITIONS = {"near": "umko", "behind": "ritpe", "under": "sabto", "beside": "lugna"}
"""With their translations."""
ADVERBS = {"often": "hiswe", "slowly": "jolte", "gladly": "fumsi", "again": "wentu", "never": "daspo", "here": "gikla"}
PRONOUNS = {
    "m": {"nsubj": "he", "obj": "him", "poss": "his"},
    "f": {"nsubj": "she", "obj": "her", "poss": "her"},
    "n": {"nsubj": "it", "obj": "it", "poss": "its"},
    "pl": {"nsubj": "they", "obj": "them", "poss": "their"},
}
"""By agreement: the gender of a singular noun, or pl."""
TOPIC_PERCENT = 75
"""Nouns of the document's topic; the others are of any topic."""


class Mention(NamedTuple):
    """A noun that a pronoun may refer to. at: its index in the document."""

    lexeme: Lexeme
    plural: bool
    at: int

    @property
    def agreement(self) -> str:
        return "pl" if self.plural else self.lexeme.gender


@dataclass(eq=False)
class SyntaxNode:
    """A word with its dependents in their order. antecedent: index in the document, of a pronoun."""

    form: str
    tag: str
    relation: str
    plural: bool | None = None
    lexeme: Lexeme | None = None
    antecedent: int = -1
    before: list["SyntaxNode"] = field(default_factory=list)
    after: list["SyntaxNode"] = field(default_factory=list)

    def words(self) -> Iterator["SyntaxNode"]:
        """All words of the tree, in the order of the sentence."""
        for child in self.before:
            yield from child.words()
        yield self
        for child in self.after:
            yield from child.words()

    def children(self) -> list["SyntaxNode"]:
        return [*self.before, *self.after]


def heads(root: SyntaxNode) -> list[int]:
    """The index of each word's head in the sentence; -1 for the root."""
    words = list(root.words())
    index = {id(word): n for n, word in enumerate(words)}
    head = {id(child): index[id(word)] for word in words for child in word.children()}
    return [head.get(id(word), -1) for word in words]


def verb_form(stem: str, plural: bool, past: bool) -> str:
    """The past has no number."""
    return stem + "ed" if past else stem if plural else stem + "s"


class Grammar:
    """Draws sentences. topic: of the document; antecedents: the nouns that a pronoun may refer to, by agreement."""

    def __init__(self, lexicon: Lexicon, zipf: float, sampler: Sampler) -> None:
        self.lexicon, self.zipf, self.sampler = lexicon, zipf, sampler
        self.topic = 0
        self.antecedents: dict[str, Mention] = {}

    def sentence(self) -> SyntaxNode:
        """A main clause with a full stop."""
        sampler = self.sampler
        referents = list(self.antecedents.values())
        mention = sampler.pick(referents) if referents and sampler.chance(45) else None
        supersense = mention.lexeme.supersense if mention else sampler.pick(SUPERSENSES)
        subject = self._pronoun(mention, "nsubj") if mention else self.noun_phrase(supersense, "nsubj")
        root = self._verb(sampler.pick(self._verbs_of(supersense)), "root", bool(subject.plural))
        root.before.append(subject)
        if sampler.chance(25):
            root.before.append(SyntaxNode(sampler.pick(tuple(ADVERBS)), "adv", "advmod"))
        assert root.lexeme is not None
        if root.lexeme.object:
            root.after.append(self._object(root.lexeme.object))
        if sampler.chance(25):
            root.after.append(self._prepositional())
        root.after.append(SyntaxNode(".", "punct", "punct"))
        return root

    def noun_phrase(self, supersense: str, relation: str, modified: bool = True) -> SyntaxNode:
        """modified: it may have a prepositional phrase or a relative clause."""
        sampler = self.sampler
        topic = self.topic if sampler.chance(TOPIC_PERCENT) else sampler.pick(range(self.lexicon.n_topics))
        lexeme, plural = self._drawn(self.lexicon.nouns[supersense, topic]), sampler.chance(50)
        noun = SyntaxNode(lexeme.stem + "s" * plural, "noun", relation, plural, lexeme)
        referents = list(self.antecedents.values())
        if referents and sampler.chance(15):
            noun.before.append(self._pronoun(sampler.pick(referents), "poss"))
        else:
            noun.before.append(SyntaxNode(sampler.pick(DETERMINERS)[plural], "det", "det", plural))
        if sampler.chance(40):
            adjective = self._drawn(self.lexicon.adjectives[supersense])
            noun.before.append(SyntaxNode(adjective.stem, "adj", "amod", lexeme=adjective))
        if modified and sampler.chance(20):
            noun.after.append(self._prepositional())
        if modified and sampler.chance(20):
            noun.after.append(self._relative_clause(supersense, plural))
        return noun

    def _relative_clause(self, supersense: str, plural: bool) -> SyntaxNode:
        """Of a noun: `that sees a boat`, or `that the dogs see`."""
        sampler = self.sampler
        of_object = [(subject, supersense) for subject, objects in FRAMES.items() if supersense in objects]
        if sampler.chance(40):
            frame = sampler.pick(of_object)
            subject = self.noun_phrase(frame[0], "nsubj", modified=False)
            verb = self._verb(frame, "relcl", bool(subject.plural))
            verb.before += [SyntaxNode("that", "rel", "obj"), subject]
            return verb
        verb = self._verb(sampler.pick(self._verbs_of(supersense)), "relcl", plural)
        verb.before.append(SyntaxNode("that", "rel", "nsubj"))
        assert verb.lexeme is not None
        if verb.lexeme.object:
            verb.after.append(self.noun_phrase(verb.lexeme.object, "obj", modified=False))
        return verb

    def _verbs_of(self, supersense: str) -> list[tuple[str, str]]:
        return [(supersense, object) for object in FRAMES[supersense]]

    def _verb(self, frame: tuple[str, str], relation: str, plural: bool) -> SyntaxNode:
        lexeme = self._drawn(self.lexicon.verbs[frame])
        past = self.sampler.chance(40)
        return SyntaxNode(verb_form(lexeme.stem, plural, past), "verb", relation, plural, lexeme)

    def _object(self, supersense: str) -> SyntaxNode:
        referents = [referent for referent in self.antecedents.values() if referent.lexeme.supersense == supersense]
        if referents and self.sampler.chance(45):
            return self._pronoun(self.sampler.pick(referents), "obj")
        return self.noun_phrase(supersense, "obj")

    def _prepositional(self) -> SyntaxNode:
        preposition = SyntaxNode(self.sampler.pick(tuple(PREPOSITIONS)), "prep", "prep")
        preposition.after.append(self.noun_phrase(self.sampler.pick(("place", "tool")), "pobj", modified=False))
        return preposition

    def _pronoun(self, mention: Mention, relation: str) -> SyntaxNode:
        return SyntaxNode(
            PRONOUNS[mention.agreement][relation], "pron", relation, mention.plural, antecedent=mention.at
        )

    def _drawn(self, lexemes: tuple[Lexeme, ...]) -> Lexeme:
        return self.sampler.pick_by_rank(lexemes, self.zipf)


RECENT = 3
"""Sentences back in which an antecedent may be."""
NONE = "-"
"""The label of a word without one."""


class WorldDocument(NamedTuple):
    """The words of a document and their labels, each a list as long as `text`, except `topic`, `cue` and `kinds`.

    Indices count the words of the document from 0. tags: parts of speech. numbers: sg or pl of nouns, pronouns,
    determiners and verbs; that of a verb is its subject's. heads: index of the head, -1 for the root of a sentence.
    senses: STEM.SUPERSENSE of homonyms. supersenses: of nouns. antecedents: index of the noun, -1 for words other than
    pronouns. cue: indices of the cue and of the word that it decides. kinds: the supersenses in it, with commas.
    """

    text: list[str]
    tags: list[str]
    numbers: list[str]
    heads: list[int]
    relations: list[str]
    senses: list[str]
    supersenses: list[str]
    antecedents: list[int]
    topic: str
    cue: list[int]
    kinds: str

    def row(self) -> dict[str, str]:
        """Every column as text, its entries separated by spaces."""
        cells = ((name, [value] if isinstance(value, str) else value) for name, value in self._asdict().items())
        return {name: " ".join(map(str, cell)) or NONE for name, cell in cells}


def documents(lexicon: Lexicon, zipf: float, n_sentences: int, cue: bool, seed: int) -> Iterator[WorldDocument]:
    """An endless iterator of documents. n_sentences: beside those of the cue."""
    grammar = Grammar(lexicon, zipf, Sampler(seed))
    while True:
        yield _document(grammar, n_sentences, cue)


def sentences(lexicon: Lexicon, zipf: float, seed: int) -> Iterator[SyntaxNode]:
    """An endless iterator of sentences without pronouns, each of a topic of its own."""
    sampler = Sampler(seed)
    grammar = Grammar(lexicon, zipf, sampler)
    while True:
        grammar.topic = sampler.pick(range(lexicon.n_topics))
        yield grammar.sentence()


def _document(grammar: Grammar, n_sentences: int, cue: bool) -> WorldDocument:
    lexicon, sampler = grammar.lexicon, grammar.sampler
    grammar.topic, grammar.antecedents = sampler.pick(range(lexicon.n_topics)), {}
    shown_cue, decided = sampler.pick(lexicon.cues) if cue else ("", "")
    made = WorldDocument([], [], [], [], [], [], [], [], f"topic{grammar.topic}", [], "")
    starts: list[int] = []
    mentions: list[Mention] = []
    if cue:
        _add(made, _cue_sentence("today", shown_cue))
    for _ in range(n_sentences):
        starts.append(len(made.text))
        oldest = starts[-RECENT - 1] if len(starts) > RECENT else starts[0]
        # Of each agreement the nearest; one that is too far back is no antecedent.
        nearest = {mention.agreement: mention for mention in mentions}
        grammar.antecedents = {key: noun for key, noun in nearest.items() if noun.at >= oldest}
        mentions += _add(made, grammar.sentence())
    if cue:
        _add(made, _cue_sentence("then", decided))
        made.cue.extend((2, len(made.text) - 2))
    return made._replace(kinds=",".join(sorted({*made.supersenses} - {NONE})))


def _cue_sentence(adverb: str, word: str) -> SyntaxNode:
    """`today is WORD .`"""
    after = [SyntaxNode(word, "cue", "attr"), SyntaxNode(".", "punct", "punct")]
    return SyntaxNode("is", "aux", "root", before=[SyntaxNode(adverb, "adv", "advmod")], after=after)


def _add(made: WorldDocument, root: SyntaxNode) -> list[Mention]:
    """Append a sentence; returns its nouns."""
    start, mentions = len(made.text), []
    for word, head in zip(root.words(), heads(root), strict=True):
        lexeme = word.lexeme if word.tag == "noun" else None
        if lexeme is not None:
            mentions.append(Mention(lexeme, bool(word.plural), len(made.text)))
        made.text.append(word.form)
        made.tags.append(word.tag)
        made.numbers.append(NONE if word.plural is None else "pl" if word.plural else "sg")
        made.heads.append(-1 if head < 0 else start + head)
        made.relations.append(word.relation)
        made.senses.append(f"{lexeme.stem}.{lexeme.supersense}" if lexeme is not None and lexeme.sense else NONE)
        made.supersenses.append(NONE if lexeme is None else lexeme.supersense)
        made.antecedents.append(word.antecedent)
    return mentions
