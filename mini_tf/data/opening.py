"""The text of any recipe, in whichever form its objective reads it: which kind of store it comes to."""

from collections.abc import Mapping

from mini_tf.data import example_store, pair_store, token_store
from mini_tf.data.example_store import ExampleStore, ExampleText, Question
from mini_tf.data.labels import Labels
from mini_tf.data.pair_store import PairStore, PairText, Tokenizers
from mini_tf.data.token_store import Say, Text, TokenStore
from mini_tf.recipe import kind_settings, sections

AnyText = Text | PairText | ExampleText
AnyStore = TokenStore | PairStore | ExampleStore


def open_text(
    data: sections.Data, tokenizer: sections.Tokenizer, objective: kind_settings.ObjectiveSettings, say: Say = lambda line: None
) -> AnyText:
    """What a recipe's data and tokenizer come to; see token_store.open_text, pair_store.open_pairs and example_store.open_examples."""
    if objective.FORM == "text":
        return token_store.open_text(data, tokenizer, say, objective.TOKENS)
    if objective.FORM == "pairs":
        return pair_store.open_pairs(data, tokenizer, say)
    return example_store.open_examples(data, tokenizer, question_of(objective), say)


def reopen(
    data: sections.Data,
    used: Tokenizers,
    objective: kind_settings.ObjectiveSettings,
    hashes: Mapping[str, str],
    say: Say = lambda line: None,
) -> AnyText:
    """The text of a trained run by its own tokenizers; see token_store.reopen."""
    if objective.FORM == "text":
        return token_store.reopen(data, used[1], hashes, say)
    if objective.FORM == "pairs":
        return pair_store.open_pairs(data, sections.Tokenizer(), say, used)
    return example_store.open_examples(data, sections.Tokenizer(), question_of(objective), say, used[1])


def encode(
    spec: object,
    used: Tokenizers,
    data: sections.Data,
    objective: kind_settings.ObjectiveSettings,
    labels: Labels | None = None,
    say: Say = lambda line: None,
) -> AnyStore:
    """All of another text, of the same form, as ids, nothing held out."""
    if objective.FORM == "text":
        return token_store.encode_file(spec, used[1], data, say)
    if objective.FORM == "pairs":
        return pair_store.encode_pairs(spec, used, data, say)
    return example_store.encode_examples(spec, used[1], data, question_of(objective, labels), say)


def question_of(objective: kind_settings.ObjectiveSettings, labels: Labels | None = None) -> Question:
    """How an objective reads labelled rows."""
    return Question(objective.FORM, getattr(objective, "labels", None), labels)
