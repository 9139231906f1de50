"""The kinds of trained tokenizers; the first ids of each are SPECIALS.

Each other file is a kind, named as in `tokenizer.kind`. It implements `TokenizerSettings`; the same texts must give the
same tokenizer, byte for byte. `mini_tf.testing.tokenizers` is the contract test. bpe and unigram share GPT-2's
byte-level words, so that nothing is unknown (Radford et al. 2019); long runs are split, which bounds time and memory.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mini_tf.recipe.kind_settings import TokenizerSettings

SPECIALS = {"pad": "<pad>", "unk": "<unk>", "separator": "</s>", "mask": "[MASK]"}


def build_vocabulary(tokens: Iterable[str]) -> dict[str, int]:
    """Ids by token: SPECIALS, then `tokens`."""
    return {token: id for id, token in enumerate([*SPECIALS.values(), *tokens])}


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
