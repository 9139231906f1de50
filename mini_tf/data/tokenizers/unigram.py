"""unigram: the most probable segmentation of each word under a unigram language model (Kudo 2018, arXiv:1804.10959)."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, models

from mini_tf.data.tokenization.pieces import BYTE_OF, CHARACTER_OF
from mini_tf.data.tokenizers import SPECIALS, _unigram_training
from mini_tf.data.tokenizers._byte_level import ByteLevelSettings, byte_level_tokenizer

SPECIAL_SCORE = -1e6
"""Log-probability of the special tokens, so that their names in text are never encoded as them."""


class Settings(ByteLevelSettings):
    MODEL = "Unigram"

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        split = byte_level_tokenizer(models.BPE()).pre_tokenizer
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in split.pre_tokenize_str(text))
        words = {bytes(BYTE_OF[c] for c in word): count for word, count in counts.items()}
        pieces = _unigram_training.train_pieces(words, vocab_size - len(SPECIALS))
        scored = [("".join(CHARACTER_OF[byte] for byte in piece), score) for piece, score in pieces]
        unknown = list(SPECIALS).index("unk")
        return byte_level_tokenizer(
            models.Unigram([*((token, SPECIAL_SCORE) for token in SPECIALS.values()), *scored], unknown, False)
        )
