"""Documents of the synthetic world: sentences of one topic, pronouns that refer back, and a cue that decides the end.

A pronoun refers to the nearest noun of an earlier sentence that has its number and, if singular, its gender. The first
sentence names a cue; the last word before the final full stop is the one that the lexicon pairs with this cue.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mini_tf.data.corpora._world.lexicon import Lexicon
from mini_tf.data.corpora._world.sampler import Sampler
from mini_tf.data.corpora._world.syntax import Grammar, Mention, Node, heads

RECENT = 3
"""Sentences back in which an antecedent may be."""
NONE = "-"
"""The label of a word without one."""


class LabelledDocument(NamedTuple):
    """The words of a document and their labels, each a list as long as `text`, except `topic` and `cue`.

    Indices count the words of the document from 0. tags: parts of speech. numbers: sg or pl of nouns, pronouns,
    determiners and verbs; that of a verb is its subject's. heads: index of the head, -1 for the root of a sentence.
    senses: STEM.SUPERSENSE of homonyms. supersenses: of nouns. antecedents: index of the noun, -1 for words other than
    pronouns. cue: indices of the cue and of the word that it decides.
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

    def row(self) -> dict[str, str]:
        """Every column as text, its entries separated by spaces."""
        cells = ((name, [value] if isinstance(value, str) else value) for name, value in self._asdict().items())
        return {name: " ".join(map(str, cell)) or NONE for name, cell in cells}


def documents(lexicon: Lexicon, zipf: float, n_sentences: int, cue: bool, seed: int) -> Iterator[LabelledDocument]:
    """An endless iterator of documents. n_sentences: beside those of the cue."""
    grammar = Grammar(lexicon, zipf, Sampler(seed))
    while True:
        yield _document(grammar, n_sentences, cue)


def sentences(lexicon: Lexicon, zipf: float, seed: int) -> Iterator[Node]:
    """An endless iterator of sentences without pronouns, each of a topic of its own."""
    sampler = Sampler(seed)
    grammar = Grammar(lexicon, zipf, sampler)
    while True:
        grammar.topic = sampler.pick(range(lexicon.n_topics))
        yield grammar.sentence()


def _document(grammar: Grammar, n_sentences: int, cue: bool) -> LabelledDocument:
    lexicon, sampler = grammar.lexicon, grammar.sampler
    grammar.topic, grammar.antecedents = sampler.pick(range(lexicon.n_topics)), {}
    given, decided = sampler.pick(lexicon.cues) if cue else ("", "")
    made = LabelledDocument([], [], [], [], [], [], [], [], f"topic{grammar.topic}", [])
    starts: list[int] = []
    mentions: list[Mention] = []
    if cue:
        _add(made, _cue_sentence("today", given))
    for _ in range(n_sentences):
        starts.append(len(made.text))
        oldest = starts[-RECENT - 1] if len(starts) > RECENT else starts[0]
        # Of each agreement the nearest; one that is too far back is no antecedent.
        nearest = {mention.agreement: mention for mention in mentions}
        grammar.antecedents = {key: one for key, one in nearest.items() if one.at >= oldest}
        mentions += _add(made, grammar.sentence())
    if cue:
        _add(made, _cue_sentence("then", decided))
        made.cue.extend((2, len(made.text) - 2))
    return made


def _cue_sentence(adverb: str, word: str) -> Node:
    """`today is WORD .`"""
    after = [Node(word, "cue", "attr"), Node(".", "punct", "punct")]
    return Node("is", "aux", "root", before=[Node(adverb, "adv", "advmod")], after=after)


def _add(made: LabelledDocument, root: Node) -> list[Mention]:
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
