"""Shared by bpe and unigram: GPT-2's byte-level words, so that nothing is unknown (Radford et al. 2019).

Long runs of whitespace or non-whitespace are split, which bounds time and memory per word.
"""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mini_tf.recipe.kind_settings import TokenizerSettings

MAX_WORD_LENGTH = 256
"""Characters; longer words are split."""


class ByteLevelSettings(TokenizerSettings):
    """Tokens are bytes and byte sequences within a word."""

    MIN_VOCAB_SIZE = (260, "cannot hold 256 bytes and 4 special tokens; use at least 260, or kind char")


def byte_level_tokenizer(model: models.Model) -> Tokenizer:
    """A tokenizer with this model and byte-level words."""
    inner = Tokenizer(model)
    short = pre_tokenizers.Split(Regex(rf"\S{{{MAX_WORD_LENGTH}}}|\s{{{MAX_WORD_LENGTH}}}"), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([short, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    return inner
