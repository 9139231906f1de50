"""The kinds of tokenizer that are trained here: char, byte, bpe, unigram, wordpiece.

The first ids are those of SPECIALS. The same texts give the same tokenizer to the byte. A long run without blanks, or of
blanks alone, is cut, so that no word takes time or memory without end.
"""

import json
from collections import Counter
from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from mini_tf.data.tokenization import unigram
from mini_tf.data.tokenization.guard import guarded
from mini_tf.data.tokenization.pieces import BYTE_OF, CHARACTER_OF
from mini_tf.recipe import sections

SPECIALS = {"pad": "<pad>", "unk": "<unk>", "separator": "</s>", "mask": "[MASK]"}
LONGEST_WORD = 256
"""Characters; longer words are cut."""
LONGEST_WHOLE_WORD = 100
"""Characters; above this the model of wordpiece would call a word unknown."""
NEVER = -1e6
"""Score of the special tokens in a unigram model, so that text in their letters is made of other pieces."""


def train(settings: sections.SideTokenizer, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """Learn what `settings` ask for; their `path` is not looked at. DataFault where the library crashes on the texts."""
    kinds = {"char": _char, "byte": _byte, "bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}
    inner = kinds[settings.kind](settings.vocab_size, texts)
    inner.add_special_tokens(list(SPECIALS.values()))
    return inner


def _char(vocab_size: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """A token is a character of the training text; all others are unknown."""
    characters: set[str] = set()
    for text in texts:
        characters.update(text)
    tokens = [*SPECIALS.values(), *sorted(characters)]
    inner = tokenizers.Tokenizer(models.WordLevel(_numbered(tokens), unk_token=SPECIALS["unk"]))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return inner


def _byte(vocab_size: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """A token is a byte of UTF-8; nothing is unknown."""
    tokens = [*SPECIALS.values(), *(CHARACTER_OF[byte] for byte in range(256))]
    inner = tokenizers.Tokenizer(models.BPE(_numbered(tokens), []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def _bpe(vocab_size: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """Byte pairs merged by frequency within GPT-2's words (Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019)."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = _words_of_bytes()
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS.values()),
        initial_alphabet=sorted(BYTE_OF),
        show_progress=False,
    )
    with guarded("training"):
        inner.train_from_iterator(texts, trainer)
    return inner


def _unigram(vocab_size: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """The likeliest pieces of GPT-2's words as bytes (Kudo 2018, arXiv:1804.10959); nothing is unknown."""
    split = _words_of_bytes()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in split.pre_tokenize_str(text))
    words = {bytes(BYTE_OF[c] for c in word): count for word, count in counts.items()}
    pieces = unigram.learn(words, vocab_size - len(SPECIALS))
    scored = [("".join(CHARACTER_OF[byte] for byte in piece), score) for piece, score in pieces]
    unknown = list(SPECIALS).index("unk")
    inner = tokenizers.Tokenizer(models.Unigram([*((token, NEVER) for token in SPECIALS.values()), *scored], unknown, False))
    inner.pre_tokenizer = split
    inner.decoder = decoders.ByteLevel()
    return inner


def _words_of_bytes() -> pre_tokenizers.PreTokenizer:
    short = pre_tokenizers.Split(Regex(rf"\S{{{LONGEST_WORD}}}|\s{{{LONGEST_WORD}}}"), "isolated")
    return pre_tokenizers.Sequence([short, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _wordpiece(vocab_size: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """BERT's, cased: the longest known beginning of a word, then of the rest, marked ## (Schuster and Nakajima 2012; arXiv:1810.04805).

    The vocabulary comes from merging pairs by frequency. Each of its characters is in it with and without ##, so that only a
    word with another character is unknown.
    """
    texts = list(texts)
    inner = tokenizers.Tokenizer(models.WordPiece({SPECIALS["unk"]: 0}, unk_token=SPECIALS["unk"]))
    cut = pre_tokenizers.Split(Regex(rf".{{{LONGEST_WHOLE_WORD}}}"), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut])
    inner.decoder = decoders.WordPiece("##", cleanup=False)
    alphabet = _alphabet(texts, (vocab_size - len(SPECIALS)) // 2)
    # Given first, all single characters have ids before the trainer counts; it would number those with ## in the order of a random hash.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIALS.values(), *alphabet, *("##" + character for character in alphabet)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    with guarded("training"):
        inner.train_from_iterator(texts, trainer)
    content = json.loads(inner.to_str())
    return tokenizers.Tokenizer.from_str(json.dumps(content | {"added_tokens": []}))


def _alphabet(texts: Iterable[str], most: int) -> list[str]:
    """The `most` frequent characters, white space apart."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    found = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(found[:most])


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: id for id, token in enumerate(tokens)}
