"""The tokenizers that are trained here; the first ids of each are those of SPECIALS.

Every other file is one of them, and its name is the word that a recipe writes. It declares what `TokenizerSettings` asks for, and
trains: the same texts give the same tokenizer to the byte. `mini_tf.testing.tokenizers` holds every kind to that.
"""

from collections.abc import Iterable

SPECIALS = {"pad": "<pad>", "unk": "<unk>", "separator": "</s>", "mask": "[MASK]"}


def numbered(tokens: Iterable[str]) -> dict[str, int]:
    """A vocabulary: SPECIALS, then these."""
    return {token: id for id, token in enumerate([*SPECIALS.values(), *tokens])}
