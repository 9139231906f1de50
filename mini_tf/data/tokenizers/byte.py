"""byte: each token is one byte of UTF-8; nothing is unknown."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mini_tf.data.tokenization.pieces import CHARACTER_OF
from mini_tf.data.tokenizers import build_vocabulary
from mini_tf.recipe.kind_settings import TokenizerSettings


class Settings(TokenizerSettings):
    MODEL, UNIT, USES_VOCAB_SIZE = "BPE", "byte", False

    def matches(self, content: dict[str, Any]) -> bool:
        return super().matches(content) and not content["model"]["merges"]

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        inner = Tokenizer(models.BPE(build_vocabulary(CHARACTER_OF[byte] for byte in range(256)), []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
        return inner
