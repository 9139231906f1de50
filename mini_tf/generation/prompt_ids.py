"""Token ids of prompts and chats, with separators as in training."""

from collections.abc import Sequence
from typing import NamedTuple

from mini_tf.data.tokenization.tokenizer import Tokenizer


def start_ids(tokenizer: Tokenizer, separated: bool) -> list[int]:
    """[begin] if training documents were `separated` and the tokenizer has a separator; otherwise []."""
    begin = tokenizer.vocabulary.begin_id
    return [begin] if separated and begin is not None else []


class Affixes(NamedTuple):
    """The ids before and behind a text that stands alone, as the model was trained to read it."""

    before: list[int]
    behind: list[int]


def between_separators(tokenizer: Tokenizer) -> Affixes:
    """Those of one example per row, or of a message."""
    separator = tokenizer.vocabulary.separator
    return Affixes(start_ids(tokenizer, separated=True), [] if separator is None else [separator])


def prompt_ids(tokenizer: Tokenizer, prompt: str, separated: bool) -> list[int]:
    """`start_ids`, then the ids of the prompt; at least one token."""
    ids = [*start_ids(tokenizer, separated), *map(int, tokenizer.encode(prompt))]
    return ids or list(map(int, tokenizer.encode("\n")[:1])) or [first_text_id(tokenizer)]


def chat_ids(tokenizer: Tokenizer, messages: Sequence[str]) -> list[int]:
    """The prompt ids of a chat: sep message sep message sep; ValueError if the tokenizer has no separator."""
    separator = tokenizer.vocabulary.separator
    if separator is None:
        raise ValueError("the tokenizer has no separator")
    return [separator, *(id for ids in tokenizer.encode_batch(messages) for id in (*map(int, ids), separator))]


def first_text_id(tokenizer: Tokenizer) -> int:
    """The lowest id that is not a special token."""
    return next(id for id in range(tokenizer.vocabulary.size) if id not in tokenizer.vocabulary.special_ids)
