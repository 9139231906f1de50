"""The built-in corpus `world-facts`: documents that tell facts, some of them twice, with summaries that have each once.

For summarization: repetitions and omissions of a generated summary can be counted exactly (`_world/facts.py`).
"""

from collections.abc import Iterator

from pydantic import Field

from mini_tf.data.corpora._world.facts import fact_lists, stated_facts
from mini_tf.data.corpora._world.settings import WorldSettings
from mini_tf.recipe.values import Share


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
        return [fact.told()[0] for fact in stated_facts(text, self.lexicon.names)]
