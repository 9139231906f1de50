"""Text from a model, from data or from a user, made safe for a terminal: nothing in it may move the cursor or hide what it is.

Shown as their numbers: what steers (control codes, bidi marks, line separators), what carries text that nobody sees (tags, invisible
operators, fillers, marks of annotations, byte order marks), halves of a surrogate pair. Left as they are: what ordinary writing needs
and what is harmless by itself, such as joiners and variation selectors (emoji, Persian, Hindi), blanks of no width (Khmer, Thai), soft
hyphens; but of several in a row, which no writing needs and which can hide a message, only the first. The price: three flags that are
written in tags (England, Scotland, Wales), the vowel separator of Mongolian, old Hangul.
"""

import re

_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HIDING = (
    "\u115f\u1160\u17b4\u17b5\u3164\uffa0\u180e\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
)
_SELECTORS = "\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_SINGLE = f"\u00ad\u034f\u200b-\u200d{_SELECTORS}"
# A joiner behind a selector is how emoji are composed: a heart, its colour, a joiner, a flame.
_UNSAFE = re.compile(f"[{_STEERING}{_HIDING}]|(?<=[{_SINGLE}])(?!(?<=[{_SELECTORS}])\u200d)[{_SINGLE}]")


def safe_text(text: str) -> str:
    """The text with everything visible that could steer a terminal or hide in it; \\n and \\t pass."""
    return _UNSAFE.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
