"""The kinds of trained tokenizers; the first ids of each are SPECIALS.

Each other file is a kind, named as in `tokenizer.kind`. It implements `TokenizerSettings`; the same texts must give the
same tokenizer, byte for byte. `mini_tf.testing.tokenizers` is the contract test.
"""

from collections.abc import Iterable

SPECIALS = {"pad": "<pad>", "unk": "<unk>", "separator": "</s>", "mask": "[MASK]"}


def build_vocabulary(tokens: Iterable[str]) -> dict[str, int]:
    """Ids by token: SPECIALS, then `tokens`."""
    return {token: id for id, token in enumerate([*SPECIALS.values(), *tokens])}
