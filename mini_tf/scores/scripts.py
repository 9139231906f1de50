"""Words of texts in any script, for metrics that compare words.

Most scripts have spaces between words. In Chinese, Japanese, Thai and their neighbours each character counts as a word.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

_HAN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3100-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_OTHERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\ua9e0-\ua9ff\uaa60-\uaa7f"
)
"""Thai, Lao, Burmese, Khmer, Tai, Hiragana, Katakana."""
_UNSPACED = re.compile(f"[{_HAN}{_OTHERS}]")
_CHINESE = re.compile(f"[{_HAN}]")
MOST_OTHERS = 0.05
"""Largest share of other scripts without spaces in Chinese text. A quarter or more of a Japanese text is kana."""


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and their marks in lower case; of a script without spaces each character."""
    lowered = unicodedata.normalize("NFC", text.lower())
    words = "".join(map(_spaced, lowered)).split()
    return [word for word in words if word[0].isalnum() or _UNSPACED.match(word)]  # not a mark behind an emoji


def _spaced(character: str) -> str:
    if unicodedata.category(character) not in ("Ll", "Lo", "Lm", "Lu", "Lt", "Mn", "Mc", "Me", "Nd", "Nl"):
        return " "
    return f" {character} " if _UNSPACED.match(character) else character


def count_words(text: str) -> int:
    """About the number of `words_of`, in less time."""
    return len(text.split()) + len(_UNSPACED.findall(text))


def bleu_tokenizer(texts: Iterable[str]) -> Literal["13a", "zh", "char"]:
    """sacrebleu's tokenizer for most of the letters of these texts: `char` has each character as a word."""
    letters = [character for text in texts for character in text if character.isalpha()]
    unspaced = [character for character in letters if _UNSPACED.match(character)]
    if 2 * len(unspaced) <= len(letters):
        return "13a"
    others = sum(not _CHINESE.match(character) for character in unspaced)
    return "zh" if others <= MOST_OTHERS * len(unspaced) else "char"
