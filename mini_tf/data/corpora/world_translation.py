"""The built-in corpus `world-translation`: sentences of the corpus `world`, translated, with gold word alignments.

The target has another order, endings of case, and another word for each sense of a homonym (`_world/translation.py`).
"""

from collections.abc import Iterator
from itertools import islice

from mini_tf.data.corpora._world.documents import sentences
from mini_tf.data.corpora._world.settings import WorldSettings
from mini_tf.data.corpora._world.translation import Translation, translate


class Settings(WorldSettings):
    VERSION, COLUMNS = "1", ("source", "target", "alignment")

    def rows(self) -> Iterator[dict[str, str]]:
        return (pair.row() for pair in islice(self._distinct(), self.n_documents))

    def _distinct(self) -> Iterator[Translation]:
        seen = set()
        for pair in map(translate, sentences(self.lexicon, self.zipf, self.seed)):
            if (key := " ".join(pair.source)) not in seen:
                seen.add(key)
                yield pair
