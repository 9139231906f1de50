"""What bpe and unigram share: GPT-2's words as bytes, so that nothing is unknown (Radford et al. 2019).

A long run without blanks, or of blanks alone, is cut, so that no word takes time or memory without end.
"""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mini_tf.recipe.kind_settings import TokenizerSettings

LONGEST_WORD = 256
"""Characters; longer words are cut."""


class ByteLevelSettings(TokenizerSettings):
    """Tokens are bytes, and runs of them within a word."""

    MIN_VOCAB_SIZE = (260, "cannot hold 256 bytes and 4 special tokens; use at least 260, or kind char")


def with_words(model: models.Model) -> Tokenizer:
    """A tokenizer of this model that cuts texts into such words."""
    inner = Tokenizer(model)
    short = pre_tokenizers.Split(Regex(rf"\S{{{LONGEST_WORD}}}|\s{{{LONGEST_WORD}}}"), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([short, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    return inner
