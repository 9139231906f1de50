"""The built-in corpus `world-translation`: sentences of the corpus `world`, translated, with gold word alignments.

The target has another order, endings of case, and another word for each sense of a homonym (`_world/translation.py`).
"""

from collections.abc import Iterator

from mini_tf.data.corpora._world.documents import sentences
from mini_tf.data.corpora._world.settings import WorldSettings
from mini_tf.data.corpora._world.translation import translate


class Settings(WorldSettings):
    VERSION, COLUMNS = "1", ("source", "target", "alignment")

    def rows(self) -> Iterator[dict[str, str]]:
        made = map(translate, sentences(self.lexicon, self.zipf, self.seed))
        return (pair.row() for pair in self.different(made, lambda pair: " ".join(pair.source), "n_lexemes"))
