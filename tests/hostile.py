"""Tokens that real vocabularies hold and that break terminals, markup, XML or mathematics where they arrive raw."""

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "</text><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\"'&",
    "\u2028",
    "\ud800",
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202etxt.exe",
    "\u2066",
    "\u200b\ufeff\u2060",
    "\u3164\u2800a\u034f\U000e0100",
    "\x00\ufffe\uffff",
    "[/INST]",
    "[bold]",
    "[link=http://x]",
    "[unused1]",
    ":smile:",
    "__DATA__",
    "$x$",
    "$\\frac{",
    "_private",
    "a" * 2000,
    "é" + "\u0301" * 2000,
    "\u0301",
    "漢字" * 20,
    "🙂👩\u200d👩\u200d👧❤\ufe0f",
    "שלום",
    " the",
    "\r\n\t",
    "",
]

STEERING = (
    "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    + "\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    + "\u2060\u2066\u2067\u2068\u2069\ufeff\ud800\udfff\ufe0f"
    + "\u3164\u115f\u1160\uffa0\u2800\u034f\u180b\u180c\u180d\u180e\u180f\u17b4\u17b5\U0001d159\U000e0100\U000e01ef"
)
"""Characters that steer a terminal or are not seen."""
