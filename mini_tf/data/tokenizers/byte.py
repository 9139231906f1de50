"""byte: a token is a byte of UTF-8; nothing is unknown."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mini_tf.data.tokenization.pieces import CHARACTER_OF
from mini_tf.data.tokenizers import numbered
from mini_tf.recipe.kind_settings import TokenizerSettings


class Settings(TokenizerSettings):
    MODEL, UNIT, USES_VOCAB_SIZE = "BPE", "byte", False

    def made(self, content: dict[str, Any]) -> bool:
        return super().made(content) and not content["model"]["merges"]

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        inner = Tokenizer(models.BPE(numbered(CHARACTER_OF[byte] for byte in range(256)), []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        return inner
