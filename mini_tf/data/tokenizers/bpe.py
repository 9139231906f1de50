"""bpe: byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909)."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, models, trainers

from mini_tf.data.tokenization.guard import guarded
from mini_tf.data.tokenization.pieces import BYTE_OF
from mini_tf.data.tokenizers import SPECIALS, ByteLevelSettings, byte_level_tokenizer


class Settings(ByteLevelSettings):
    MODEL = "BPE"

    def matches(self, content: dict[str, Any]) -> bool:
        return super().matches(content) and bool(content["model"]["merges"])

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        inner = byte_level_tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIALS.values()),
            initial_alphabet=sorted(BYTE_OF),
            show_progress=False,
        )
        with guarded("training"):
            inner.train_from_iterator(texts, trainer)
        return inner
