"""The built-in corpus `world-facts`: documents that tell facts, some of them twice, with summaries that have each once.

For summarization: repetitions and omissions of a generated summary can be counted exactly (`stated_facts`).
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from pydantic import Field

from mini_tf.data.corpora._grammar_documents import Grammar, verb_form
from mini_tf.data.corpora._lexicon import Lexicon, Sampler, WorldSettings
from mini_tf.recipe.kinds import Share


class Settings(WorldSettings):
    VERSION, COLUMNS = "1", ("source", "target")

    n_facts: int = Field(4, ge=1, le=100)
    """Largest number of facts in a document; the smallest is half of it."""
    n_distractors: int = Field(3, ge=0, le=1000)
    """Other sentences of a document."""
    repetition_rate: Share = 0.5
    """Probability that a fact is stated a second time, in another form."""

    def rows(self) -> Iterator[dict[str, str]]:
        repetition = round(100 * self.repetition_rate)
        made = fact_lists(self.lexicon, self.zipf, self.n_facts, self.n_distractors, repetition, self.seed)
        different = self.different(made, lambda pair: pair[0], "n_facts, n_distractors or n_lexemes")
        return ({"source": source, "target": target} for source, target in different)

    def facts(self, text: str) -> list[str]:
        return [fact.sentences()[0] for fact in stated_facts(text, self.lexicon.names)]


class Fact(NamedTuple):
    """verb: the stem."""

    name: str
    verb: str
    noun: str

    def sentences(self) -> tuple[str, str, str]:
        """The fact in three forms; the first is that of the summary."""
        name, present, past = self.name, verb_form(self.verb, False, False), verb_form(self.verb, False, True)
        return (
            f"{name} {present} the {self.noun} .",
            f"the {self.noun} is {past} by {name} .",
            f"it is {name} that {present} the {self.noun} .",
        )


def stated_facts(text: str, names: Collection[str]) -> list[Fact]:
    """The facts that a text states, in any of the three forms; other sentences state none. names: of persons."""
    facts = []
    for words in (sentence.split() for sentence in text.split(".")):
        match words:
            case [name, present, "the", noun]:
                fact = Fact(name, present[:-1], noun)
            case ["the", noun, "is", past, "by", name]:
                fact = Fact(name, past[:-2], noun)
            case ["it", "is", name, "that", present, "the", noun]:
                fact = Fact(name, present[:-1], noun)
            case _:
                continue
        if fact.name in names and " ".join([*words, "."]) in fact.sentences():
            facts.append(fact)
    return facts


def fact_lists(
    lexicon: Lexicon, zipf: float, n_facts: int, n_distractors: int, repetition_percent: int, seed: int
) -> Iterator[tuple[str, str]]:
    """An endless iterator of documents with their summaries.

    n_facts: the largest number of a document; the smallest is half of it. repetition_percent: probability that a fact
    is stated a second time, in another form.
    """
    sampler = Sampler(seed)
    grammar = Grammar(lexicon, zipf, sampler)
    objects = [object for subject, object in lexicon.verbs if subject == "person" and object]
    while True:
        grammar.topic = sampler.pick(range(lexicon.n_topics))
        facts: dict[Fact, None] = {}
        n = sampler.pick(range((n_facts + 1) // 2, n_facts + 1))
        while len(facts) < n:
            object = sampler.pick(objects)
            verb = sampler.pick_by_rank(lexicon.verbs["person", object], zipf)
            noun = sampler.pick_by_rank(lexicon.nouns[object, grammar.topic], zipf)
            facts[Fact(sampler.pick(lexicon.names), verb.stem, noun.stem)] = None
        statements = [(fact, sampler.pick(fact.sentences())) for fact in facts]
        for fact, form in list(statements):
            if sampler.chance(repetition_percent):
                statements.append((fact, sampler.pick([form_ for form_ in fact.sentences() if form_ != form])))
        others = [(None, " ".join(word.form for word in grammar.sentence().words())) for _ in range(n_distractors)]
        document = sampler.shuffle([*statements, *others])
        first = dict.fromkeys(fact for fact, _ in document if fact is not None)
        yield " ".join(text for _, text in document), " ".join(fact.sentences()[0] for fact in first)
