"""The text of any recipe, texts or pairs: which of the two kinds of stores it comes to."""

from collections.abc import Iterable, Mapping

from mini_tf.recipe import sections
from mini_tf.text import pair_store, token_store
from mini_tf.text.pair_store import PairStore, PairText, Tokenizers
from mini_tf.text.token_store import Say, Text, TokenStore

AnyText = Text | PairText
AnyStore = TokenStore | PairStore


def open_text(data: sections.Data, tokenizer: sections.Tokenizer, say: Say = lambda line: None, needs: Iterable[str] = ()) -> AnyText:
    """What a recipe's data and tokenizer come to; see token_store.open_text and pair_store.open_pairs."""
    return pair_store.open_pairs(data, tokenizer, say) if data.pairs else token_store.open_text(data, tokenizer, say, needs)


def reopen(data: sections.Data, used: Tokenizers, hashes: Mapping[str, str], say: Say = lambda line: None) -> AnyText:
    """The text of a trained run by its own tokenizers; see token_store.reopen."""
    if data.pairs:
        return pair_store.open_pairs(data, sections.Tokenizer(), say, used)
    return token_store.reopen(data, used[1], hashes, say)


def encode(spec: object, used: Tokenizers, data: sections.Data, say: Say = lambda line: None) -> AnyStore:
    """All of another text, of the same kind as `data`, as ids, nothing held out."""
    return pair_store.encode_pairs(spec, used, data, say) if data.pairs else token_store.encode_file(spec, used[1], data, say)
