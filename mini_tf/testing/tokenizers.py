"""The contract of a tokenizer that is trained: a text comes back or it is said what is lost, and the same texts give the same file."""

from collections.abc import Callable

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.testing import Case, cases_of

SAMPLE = 'The cat sat on the mat. It\'s 3.5 "naïve" 日本!\n\n\tAnd </s> or [MASK], <pad> too.\n'
NASTY = [
    "",
    " ",
    "   \t ",
    "\n\n\n",
    " a\tb \r\n\r c\x0b\x0c",
    "\0\x01\x1b[31m\x7f\x9b",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "漢字かな交じり文。",
    "\u202eשלום عليكم",
    "e\u0301\u0323o\u0308",
    "\ufffd\ufffe\ue000\U0010fffd",
    "</s>[MASK] [UNK]<unk><pad> <0x41> ##ing ## ▁ ▁the Ġthe",
    "word " * 2000,
    "x" * 10_000,
    " " * 10_000,
    "don't \u2028 can\u00a0not \u3000",
]
_SIZE = 300


def trained(settings: TokenizerSettings, vocab_size: int = _SIZE, text: str = SAMPLE) -> Tokenizer:
    """A tokenizer of this kind that has read one text."""
    inner = settings.train(vocab_size, [text])
    inner.add_special_tokens(list(SPECIALS.values()))
    return Tokenizer(inner)


def brings_text_back_or_says_what_is_lost(settings: TokenizerSettings) -> None:
    """Of its own text and of texts that it never saw, such as names of special tokens, scripts, control characters and long runs."""
    tokenizer = trained(settings)
    for text in (SAMPLE, *NASTY):
        keeps(tokenizer, text)


def keeps(tokenizer: Tokenizer, text: str) -> None:
    """All of the text comes back, but for what `losses` names; what came back once stays as it is; nothing became special."""
    ids, spans = tokenizer.spans(text)
    assert ids.tolist() == tokenizer.encode(text).tolist(), f"encode and spans must give the same ids of {text[:40]!r}"
    read = (set(ids.tolist()) & tokenizer.vocabulary.special_ids) - {tokenizer.vocabulary.unk}
    assert not read, f"no special token may be read out of text: {tokenizer.pieces(sorted(read))} of {text[:40]!r}"
    back = tokenizer.decode(ids)
    again = tokenizer.decode(tokenizer.encode(back))
    assert again == back, f"what came back once must stay as it is: {again[:40]!r} of {back[:40]!r}"
    told, known = " ".join(tokenizer.round_trip_losses), text
    if "becomes the unknown token" in told:
        gone = {i for id, (first, last) in zip(ids, spans, strict=True) if id == tokenizer.vocabulary.unk for i in range(first, last)}
        known = "".join(character for i, character in enumerate(text) if i not in gone)
    if "whitespace is not preserved" in told:
        known, back = "".join(known.split()), "".join(back.split())
    assert back == known, f"{text[:40]!r} comes back as {back[:40]!r}; its losses say only: {tokenizer.round_trip_losses}"


def has_the_special_tokens_first(settings: TokenizerSettings) -> None:
    """By their ids, which are the same for all kinds, and under their names."""
    tokenizer = trained(settings)
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.pad, vocabulary.unk, vocabulary.separator, vocabulary.mask) == (0, 1, 2, 3), f"wrong ids: {vocabulary}"
    assert [*tokenizer.special_tokens] == [*SPECIALS.values()], f"wrong names: {tokenizer.special_tokens}"


def keeps_to_the_size_that_it_is_given(settings: TokenizerSettings) -> None:
    """USES_VOCAB_SIZE: at most so many tokens, of a text of a thousand characters too; else the size makes no difference."""
    text = SAMPLE + "".join(map(chr, range(0x4E00, 0x5200)))
    least = max(settings.MIN_VOCAB_SIZE[0], 8)
    sizes = [trained(settings, size, text).vocabulary.size for size in (least, least + 60)]
    if settings.USES_VOCAB_SIZE:
        assert sizes[0] <= least, f"a vocabulary of at most {least} has {sizes[0]} tokens; MIN_VOCAB_SIZE must be what it can hold"
        assert sizes[1] <= least + 60, f"a vocabulary of at most {least + 60} has {sizes[1]} tokens"
    else:
        assert sizes[0] == sizes[1], f"vocab_size changes its size: {sizes}; declare USES_VOCAB_SIZE = True"


def gives_the_same_file_for_the_same_texts(settings: TokenizerSettings) -> None:
    """To the byte."""
    text = (SAMPLE + "abab baba cdcd dcdc " * 3) * 3
    one, other = (trained(settings, _SIZE, text).to_json() for _ in range(2))
    assert one == other, "the same text must give the same tokenizer.json"


def is_known_by_its_file(settings: TokenizerSettings) -> None:
    """`made` tells a tokenizer.json of this kind from those of other kinds."""
    kind = trained(settings).kind
    assert kind == settings.kind, f"its tokenizer.json is taken for one of {kind}"


CONTRACT: tuple[Callable[[TokenizerSettings], None], ...] = (
    brings_text_back_or_says_what_is_lost,
    has_the_special_tokens_first,
    keeps_to_the_size_that_it_is_given,
    gives_the_same_file_for_the_same_texts,
    is_known_by_its_file,
)
"""Every function that a tokenizer must bear."""


def cases(settings: TokenizerSettings) -> list[Case]:
    """Everything that a tokenizer of this kind must do."""
    return cases_of(CONTRACT, settings)
