"""Words are the user's own: runs without white space as typed, whatever a tokenizer makes of them."""

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import Affixes, affixes
from mini_tf.inspection._texts import ModelInput, Words, text_input, words_of
from mini_tf.recipe.sections import Tokenizer as TokenizerSettings
from mini_tf.system.errors import UsageFault

KINDS = ["char", "byte", "bpe", "wordpiece", "unigram", "uncased", "metaspace"]
TEXT = "  I don't\tsee  the Zebra's café, (the 漢字 🙂)\n"


def tokenizer_of(kind: str) -> Tokenizer:
    """`uncased` and `metaspace` as BERT's and sentencepiece's, with a few words; the others learn from words that lack
    the text's.
    """
    if kind == "uncased":
        vocabulary = ["[UNK]", "[SEP]", "i", "don", "'", "t", "see", "the", "cafe", ",", "(", ")", "s"]
        inner = tokenizers.Tokenizer(
            models.WordPiece({token: id for id, token in enumerate(vocabulary)}, unk_token="[UNK]")
        )
        inner.normalizer = normalizers.BertNormalizer(lowercase=True)
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.add_special_tokens(["[UNK]", "[SEP]"])
        return Tokenizer(inner)
    if kind == "metaspace":
        vocabulary = ["<unk>", "</s>", "▁", "▁don", "'t", *"▁I Idontsehzbra'cf,()"]
        inner = tokenizers.Tokenizer(models.Unigram([(token, -1.0) for token in dict.fromkeys(vocabulary)], 0, False))
        inner.pre_tokenizer = pre_tokenizers.Metaspace()
        inner.add_special_tokens(["<unk>", "</s>"])
        return Tokenizer(inner)
    return Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=300), ["I don't know the cat. the end " * 20])  # type: ignore[arg-type]


def words(kind: str, text: str, context: int = 999) -> tuple[ModelInput, Words]:
    tokenizer = tokenizer_of(kind)
    given = text_input(tokenizer, text, affixes(tokenizer, "continued")).truncate(context)
    return given, words_of(given, tokenizer.pieces(given.ids))


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_the_texts_own_by_every_tokenizer(kind: str) -> None:
    given, found = words(kind, TEXT)
    assert found.texts == [found.texts[0], *TEXT.split()]
    assert found.texts[0] in ("</s>", "[SEP]"), "a separator stands alone"
    assert found.of_token.count(0) == 1
    for token, number in enumerate(found.of_token):
        if (span := given.spans[token]) is not None and (seen := TEXT[slice(*span)].strip()):
            assert seen in found.texts[number]
    assert found.of_token == sorted(found.of_token)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_is_cut_ends_with_what_there_is_of_its_last_word(kind: str) -> None:
    given, found = words(kind, TEXT, context=6)
    assert len(found.of_token) == len(given.ids) == 6
    end = max(span[1] for span in given.spans if span is not None)
    assert found.texts[1:] == TEXT[:end].split()


def test_white_space_belongs_to_the_word_before_it_or_at_the_beginning_to_the_one_after() -> None:
    _, found = words("byte", " a  b ")
    assert found == Words(["</s>", "a", "b"], [0, 1, 1, 1, 1, 2, 2])
    _, found = words("byte", "  ")
    assert found == Words(["</s>", "  "], [0, 1, 1])


def test_a_token_over_several_words_keeps_them_together() -> None:
    given = ModelInput("in order to go", [5, 6, 7], [(0, 8), (8, 11), (11, 14)])
    assert words_of(given, ["in order", " to", " go"]) == Words(["in order", "to", "go"], [0, 1, 2])


def test_a_text_that_leaves_nothing_to_read_is_refused() -> None:
    tokenizer = tokenizer_of("uncased")
    for text, said in (("", "a text is empty"), (" \n", "the tokenizer drops all characters of a text")):
        with pytest.raises(UsageFault, match=f"^{said}, and this model has no separator token to start with$"):
            text_input(tokenizer, text, Affixes([], []))
        assert text_input(tokenizer, text, affixes(tokenizer, "continued")).spans == [None]
