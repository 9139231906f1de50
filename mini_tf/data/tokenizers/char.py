"""char: each token is one character of the training data; other characters are unknown."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mini_tf.data.tokenizers import SPECIALS, build_vocabulary
from mini_tf.recipe.kind_settings import TokenizerSettings


class Settings(TokenizerSettings):
    MODEL, UNIT, USES_VOCAB_SIZE = "WordLevel", "character", False

    def matches(self, content: dict[str, Any]) -> bool:
        part = content["pre_tokenizer"] or {}
        return super().matches(content) and part.get("type") == "Split" and part.get("behavior") == "Isolated"

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        inner = Tokenizer(models.WordLevel(build_vocabulary(sorted(characters)), unk_token=SPECIALS["unk"]))
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        inner.decoder = decoders.Fuse()
        return inner
