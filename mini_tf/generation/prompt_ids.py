"""A text as a model reads it: opened by a separator where training opened documents so; turns of a conversation, each between two."""

from collections.abc import Sequence

from mini_tf.data.tokenization.tokenizer import Tokenizer


def start_ids(tokenizer: Tokenizer, separated: bool) -> list[int]:
    """The separator, where documents in training were `separated` and the tokenizer has one; else nothing."""
    separator = tokenizer.vocabulary.separator
    return [separator] if separated and separator is not None else []


def prompt_ids(tokenizer: Tokenizer, prompt: str, separated: bool) -> list[int]:
    """The ids that the model reads first: the opening and the prompt; at least one token."""
    ids = [*start_ids(tokenizer, separated), *map(int, tokenizer.encode(prompt))]
    return ids or list(map(int, tokenizer.encode("\n")[:1])) or [first_text_id(tokenizer)]


def chat_ids(tokenizer: Tokenizer, turns: Sequence[str]) -> list[int]:
    """The ids that a model reads before it answers: sep turn sep turn sep; ValueError where the tokenizer has no separator."""
    [separator] = start_ids(tokenizer, separated=True)
    return [separator, *(id for ids in tokenizer.encode_batch(turns) for id in (*map(int, ids), separator))]


def first_text_id(tokenizer: Tokenizer) -> int:
    """The first id that stands for text."""
    return next(id for id in range(tokenizer.vocabulary.size) if id not in tokenizer.vocabulary.special_ids)
