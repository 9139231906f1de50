"""Sentences of the synthetic world as dependency trees, each word with its gold labels.

Determiners and verbs in the present agree in number with a noun that may be several words away; a verb selects the
supersense of its subject and object, which decides the sense of a homonym; relative clauses have a gap at the subject
or at the object. Words follow Universal Dependencies in spirit: relations are nsubj, obj, det, amod, poss, prep, pobj,
relcl, advmod, attr, punct and root; a relative pronoun depends on the verb of its clause.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mini_tf.data.corpora._world.lexicon import FRAMES, SUPERSENSES, Lexeme, Lexicon
from mini_tf.data.corpora._world.sampler import Sampler

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
class Node:
    """A word with its dependents in their order. antecedent: index in the document, of a pronoun."""

    form: str
    tag: str
    relation: str
    plural: bool | None = None
    lexeme: Lexeme | None = None
    antecedent: int = -1
    before: list["Node"] = field(default_factory=list)
    after: list["Node"] = field(default_factory=list)

    def words(self) -> Iterator["Node"]:
        """All words of the tree, in the order of the sentence."""
        for child in self.before:
            yield from child.words()
        yield self
        for child in self.after:
            yield from child.words()

    def children(self) -> list["Node"]:
        return [*self.before, *self.after]


def heads(root: Node) -> list[int]:
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

    def sentence(self) -> Node:
        """A main clause with a full stop."""
        sampler = self.sampler
        referents = list(self.antecedents.values())
        mention = sampler.pick(referents) if referents and sampler.chance(45) else None
        supersense = mention.lexeme.supersense if mention else sampler.pick(SUPERSENSES)
        subject = self._pronoun(mention, "nsubj") if mention else self.noun_phrase(supersense, "nsubj")
        root = self._verb(sampler.pick(self._verbs_of(supersense)), "root", bool(subject.plural))
        root.before.append(subject)
        if sampler.chance(25):
            root.before.append(Node(sampler.pick(tuple(ADVERBS)), "adv", "advmod"))
        assert root.lexeme is not None
        if root.lexeme.object:
            root.after.append(self._object(root.lexeme.object))
        if sampler.chance(25):
            root.after.append(self._prepositional())
        root.after.append(Node(".", "punct", "punct"))
        return root

    def noun_phrase(self, supersense: str, relation: str, modified: bool = True) -> Node:
        """modified: it may have a prepositional phrase or a relative clause."""
        sampler = self.sampler
        topic = self.topic if sampler.chance(TOPIC_PERCENT) else sampler.pick(range(self.lexicon.n_topics))
        lexeme, plural = self._drawn(self.lexicon.nouns[supersense, topic]), sampler.chance(50)
        noun = Node(lexeme.stem + "s" * plural, "noun", relation, plural, lexeme)
        referents = list(self.antecedents.values())
        if referents and sampler.chance(15):
            noun.before.append(self._pronoun(sampler.pick(referents), "poss"))
        else:
            noun.before.append(Node(sampler.pick(DETERMINERS)[plural], "det", "det", plural))
        if sampler.chance(40):
            adjective = self._drawn(self.lexicon.adjectives[supersense])
            noun.before.append(Node(adjective.stem, "adj", "amod", lexeme=adjective))
        if modified and sampler.chance(20):
            noun.after.append(self._prepositional())
        if modified and sampler.chance(20):
            noun.after.append(self._relative_clause(supersense, plural))
        return noun

    def _relative_clause(self, supersense: str, plural: bool) -> Node:
        """Of a noun: `that sees a boat`, or `that the dogs see`."""
        sampler = self.sampler
        of_object = [(subject, supersense) for subject, objects in FRAMES.items() if supersense in objects]
        if sampler.chance(40):
            frame = sampler.pick(of_object)
            subject = self.noun_phrase(frame[0], "nsubj", modified=False)
            verb = self._verb(frame, "relcl", bool(subject.plural))
            verb.before += [Node("that", "rel", "obj"), subject]
            return verb
        verb = self._verb(sampler.pick(self._verbs_of(supersense)), "relcl", plural)
        verb.before.append(Node("that", "rel", "nsubj"))
        assert verb.lexeme is not None
        if verb.lexeme.object:
            verb.after.append(self.noun_phrase(verb.lexeme.object, "obj", modified=False))
        return verb

    def _verbs_of(self, supersense: str) -> list[tuple[str, str]]:
        return [(supersense, object) for object in FRAMES[supersense]]

    def _verb(self, frame: tuple[str, str], relation: str, plural: bool) -> Node:
        lexeme = self._drawn(self.lexicon.verbs[frame])
        past = self.sampler.chance(40)
        return Node(verb_form(lexeme.stem, plural, past), "verb", relation, plural, lexeme)

    def _object(self, supersense: str) -> Node:
        referents = [one for one in self.antecedents.values() if one.lexeme.supersense == supersense]
        if referents and self.sampler.chance(45):
            return self._pronoun(self.sampler.pick(referents), "obj")
        return self.noun_phrase(supersense, "obj")

    def _prepositional(self) -> Node:
        preposition = Node(self.sampler.pick(tuple(PREPOSITIONS)), "prep", "prep")
        preposition.after.append(self.noun_phrase(self.sampler.pick(("place", "tool")), "pobj", modified=False))
        return preposition

    def _pronoun(self, mention: Mention, relation: str) -> Node:
        return Node(PRONOUNS[mention.agreement][relation], "pron", relation, mention.plural, antecedent=mention.at)

    def _drawn(self, lexemes: tuple[Lexeme, ...]) -> Lexeme:
        return self.sampler.pick_by_rank(lexemes, self.zipf)
