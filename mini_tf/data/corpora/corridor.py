"""The built-in corpus `corridor`: a word at the beginning is to be said again after `distance` words.

    start gako filler filler ... door gako

Every other word is known without the cue or drawn at random. Source: the corridor task of Sukhbaatar et al. 2021,
arXiv:2105.06548, as text.
"""

from mini_tf.data.corpora._lexicon import SYMBOLS, Sampler, StreamSettings


class Settings(StreamSettings):
    def document(self, sampler: Sampler) -> tuple[list[str], list[int]]:
        cue = sampler.pick(SYMBOLS[: self.n_symbols])
        return ["start", cue, *self.fillers(sampler, self.distance - 2), "door", cue], [self.distance + 1]
