"""unigram: the likeliest pieces of words (Kudo 2018, arXiv:1804.10959)."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, models

from mini_tf.data.tokenization.pieces import BYTE_OF, CHARACTER_OF
from mini_tf.data.tokenizers import SPECIALS, _unigram_training
from mini_tf.data.tokenizers._byte_level import ByteLevelSettings, with_words

NEVER = -1e6
"""Score of the special tokens, so that text in their letters is made of other pieces."""


class Settings(ByteLevelSettings):
    MODEL = "Unigram"

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        split = with_words(models.BPE()).pre_tokenizer
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in split.pre_tokenize_str(text))
        words = {bytes(BYTE_OF[c] for c in word): count for word, count in counts.items()}
        pieces = _unigram_training.learn(words, vocab_size - len(SPECIALS))
        scored = [("".join(CHARACTER_OF[byte] for byte in piece), score) for piece, score in pieces]
        unknown = list(SPECIALS).index("unk")
        return with_words(models.Unigram([*((token, NEVER) for token in SPECIALS.values()), *scored], unknown, False))
