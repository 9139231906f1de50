"""The built-in corpus `associative-recall`: pairs of a key and a value, then a key, whose value is to be said.

    bamil gako dukor zuri ... filler ... recall dukor zuri

The pair that is asked for is drawn at random, so the answer depends on the key and not on a distance: `distance` is
that of the first value, the others are nearer. Source: Ba et al. 2016, arXiv:1610.06258, section 4.1, with
fillers between.
"""

from pydantic import Field

from mini_tf.data.corpora._lexicon import KEYS, MAX_WORDS, SYMBOLS, Sampler, StreamSettings


class Settings(StreamSettings):
    n_pairs: int = Field(8, ge=1, le=MAX_WORDS)
    """Pairs of a document; its keys are different."""

    @property
    def shortest(self) -> int:
        return 2 * self.n_pairs + 1

    def document(self, sampler: Sampler) -> tuple[list[str], list[int]]:
        keys = sampler.shuffle(KEYS)[: self.n_pairs]
        pairs = [(key, sampler.pick(SYMBOLS[: self.n_symbols])) for key in keys]
        stated = [word for pair in pairs for word in pair]
        fillers = self.fillers(sampler, self.distance - self.shortest)
        return [*stated, *fillers, "recall", *sampler.pick(pairs)], [self.distance + 1]
