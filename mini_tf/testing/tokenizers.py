"""The contract of trainable tokenizers: encoding is lossless except for declared losses, training deterministic."""

import json

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import kinds_of
from mini_tf.testing import Case, cases_of, checks_of
from mini_tf.testing.kinds import depend_on_hash_seed

SAMPLE = 'The cat sat on the mat. It\'s 3.5 "naïve" 日本!\n\n\tAnd </s> or [MASK], <pad> too.\n'
DIFFICULT = [
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
    """A tokenizer of this kind, trained on one text."""
    inner = settings.train(vocab_size, [text])
    inner.add_special_tokens(list(SPECIALS.values()))
    return Tokenizer(inner)


def round_trips_text_except_declared_losses(settings: TokenizerSettings) -> None:
    """For the training text and unseen text: names of special tokens, scripts, control characters, long runs."""
    tokenizer = trained(settings)
    for text in (SAMPLE, *DIFFICULT):
        assert_round_trip(tokenizer, text)


def assert_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """decode(encode(text)) is the text except for the declared `losses` and idempotent, and has no special tokens."""
    ids, spans = tokenizer.spans(text)
    assert ids.tolist() == tokenizer.encode(text).tolist(), f"encode and spans must give the same ids of {text[:40]!r}"
    special = (set(ids.tolist()) & tokenizer.vocabulary.special_ids) - {tokenizer.vocabulary.unk}
    assert not special, (
        f"text must not be encoded as special tokens: {tokenizer.pieces(sorted(special))} of {text[:40]!r}"
    )
    back = tokenizer.decode(ids)
    again = tokenizer.decode(tokenizer.encode(back))
    assert again == back, f"decoding must be idempotent: {again[:40]!r} of {back[:40]!r}"
    losses, expected = " ".join(tokenizer.round_trip_losses), text
    if "becomes the unknown token" in losses:
        unknown = {
            i
            for id, (first, last) in zip(ids, spans, strict=True)
            if id == tokenizer.vocabulary.unk
            for i in range(first, last)
        }
        expected = "".join(character for i, character in enumerate(text) if i not in unknown)
    if "whitespace is not preserved" in losses:
        expected, back = "".join(expected.split()), "".join(back.split())
    assert back == expected, (
        f"{text[:40]!r} is decoded as {back[:40]!r}; the declared losses are only: {tokenizer.round_trip_losses}"
    )


def has_the_special_tokens_first(settings: TokenizerSettings) -> None:
    """The special tokens have their names, and the same ids for all kinds."""
    tokenizer = trained(settings)
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.pad, vocabulary.unk, vocabulary.separator, vocabulary.mask) == (0, 1, 2, 3), (
        f"wrong ids: {vocabulary}"
    )
    assert [*tokenizer.special_tokens] == [*SPECIALS.values()], f"wrong names: {tokenizer.special_tokens}"


def respects_vocab_size(settings: TokenizerSettings) -> None:
    """USES_VOCAB_SIZE: at most vocab_size tokens, also for a text with a thousand characters; else it has no effect."""
    text = SAMPLE + "".join(map(chr, range(0x4E00, 0x5200)))
    least = max(settings.MIN_VOCAB_SIZE[0], 8)
    sizes = [trained(settings, size, text).vocabulary.size for size in (least, least + 60)]
    if settings.USES_VOCAB_SIZE:
        assert sizes[0] <= least, (
            f"a vocabulary of at most {least} has {sizes[0]} tokens; MIN_VOCAB_SIZE must be what it can hold"
        )
        assert sizes[1] <= least + 60, f"a vocabulary of at most {least + 60} has {sizes[1]} tokens"
    else:
        assert sizes[0] == sizes[1], f"vocab_size changes the vocabulary: {sizes}; declare USES_VOCAB_SIZE = True"


def training_is_deterministic(settings: TokenizerSettings) -> None:
    """The same text gives the same file, to the byte."""
    text = (SAMPLE + "abab baba cdcd dcdc " * 3) * 3
    first, second = (trained(settings, _SIZE, text).to_json() for _ in range(2))
    assert first == second, "the same text must give the same tokenizer.json"


def training_does_not_depend_on_hashes(*settings: TokenizerSettings) -> None:
    """In another process a set of texts has another order: sort it."""
    different = depend_on_hash_seed(settings, (SAMPLE + "abab baba cdcd dcdc " * 3) * 3)
    assert not different, f"PYTHONHASHSEED must not change tokenizer.json: it does for {different}"


def is_recognized_by_its_file(settings: TokenizerSettings) -> None:
    """`matches` is true of its tokenizer.json, and of none of another kind."""
    kind = trained(settings).kind
    assert kind == settings.kind, f"its tokenizer.json is recognized as {kind}"
    for word, other in kinds_of("data.tokenizers").items():
        if word == settings.kind or not isinstance(others := other(), TokenizerSettings):
            continue
        content = json.loads(trained(others).to_json())
        assert not settings.matches(content), f"matches must be false of a tokenizer.json of the kind {word}"


CONTRACT = checks_of(__name__)


def cases(settings: TokenizerSettings) -> list[Case]:
    """All checks for a tokenizer of this kind."""
    return cases_of(CONTRACT, settings)
