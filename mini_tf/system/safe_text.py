"""Escaping of untrusted text for a terminal, so that it can neither move the cursor nor contain hidden text.

Escaped as \\xNN or \\uNNNN: control codes, bidi marks, line separators; invisible text (tags, invisible operators,
fillers, annotation marks, byte order marks); lone surrogates. Unchanged: joiners and variation selectors (emoji,
Persian, Hindi), zero-width spaces (Khmer, Thai) and soft hyphens, but only the first of several in a row, since a
sequence can hide a message. Also escaped, though harmless: three tag-encoded flags (England, Scotland, Wales), the
Mongolian vowel separator, old Hangul.
"""

import re

_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_INVISIBLE = (
    "\u115f\u1160\u17b4\u17b5\u3164\uffa0\u180e\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a"
    "\U000e0000-\U000e00ff"
)
_SELECTORS = "\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_SINGLE = f"\u00ad\u034f\u200b-\u200d{_SELECTORS}"
# Composed emoji have a joiner after a variation selector: heart, selector, joiner, flame.
_UNSAFE = re.compile(f"[{_CONTROL}{_INVISIBLE}]|(?<=[{_SINGLE}])(?!(?<=[{_SELECTORS}])\u200d)[{_SINGLE}]")


def safe_text(text: str) -> str:
    """Escape all control and invisible characters except \\n and \\t."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
