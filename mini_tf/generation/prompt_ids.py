"""Token ids of prompts and chats, with separators as in training."""

from collections.abc import Sequence
from typing import NamedTuple

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe.kind_settings.pipelines import Framing


class Affixes(NamedTuple):
    """The ids before and behind a text that stands alone, as the model was trained to read it."""

    before: list[int]
    behind: list[int]


def affixes(tokenizer: Tokenizer, framing: Framing, separated: bool = True) -> Affixes:
    """Those of a text of this kind: the one place that says what a model reads around a text.

    separated: training documents were separated. A model that was imported and not trained reads what its tokenizer
    adds. In training a document follows a separator; an example or a message stands between two; a source ends with
    one. Where a text with masks has a beginning of its own, it has an end, too.
    """
    vocabulary = tokenizer.vocabulary
    if vocabulary.template is not None:
        return Affixes(list(vocabulary.template.before), list(vocabulary.template.behind))
    begin, end = ([] if id is None else [id] for id in (vocabulary.begin_id, vocabulary.separator))
    if framing == "source":
        return Affixes([], end)
    if framing == "example":
        return Affixes(begin, end)
    if not separated:
        return Affixes([], [])
    return Affixes(begin, end if framing == "masked" and vocabulary.begin is not None else [])


def prompt_ids(tokenizer: Tokenizer, prompt: str, before: Sequence[int]) -> list[int]:
    """The ids `before` a prompt, then those of the prompt; at least one token."""
    ids = [*before, *map(int, tokenizer.encode(prompt))]
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
