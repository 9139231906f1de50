"""The built-in corpus `copy`: a list of words is to be said again; each word stands `distance` words behind its copy.

    copy gako zuri filler ... again gako zuri

Source: the copy task of Graves et al. 2014, arXiv:1410.5401, section 4.1, with fillers between.
"""

from collections.abc import Iterable

from pydantic import Field

from mini_tf.data.corpora._lexicon import SYMBOLS, Sampler, StreamSettings


class Settings(StreamSettings):
    length: int = Field(8, ge=1, le=10**6)
    """Words to copy."""

    @property
    def shortest(self) -> int:
        return self.length + 1

    def document(self, sampler: Sampler) -> tuple[list[str], Iterable[int]]:
        words = [sampler.pick(SYMBOLS[: self.n_symbols]) for _ in range(self.length)]
        first = self.distance + 1
        fillers = self.fillers(sampler, self.distance - self.shortest)
        return ["copy", *words, *fillers, "again", *words], range(first, first + self.length)
