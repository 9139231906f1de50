"""Text from a model, from data or from a user, made safe for a terminal: nothing in it may move the cursor or hide what it is."""

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe_text(text: str) -> str:
    """The text with everything visible that could steer a terminal: control codes, bidi marks, lone surrogates; \\n and \\t pass."""
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text)
