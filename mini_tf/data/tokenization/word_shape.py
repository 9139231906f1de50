"""The shape of a word: which of its characters are capital letters, small letters, digits and others."""

import re


def shape(word: str) -> str:
    """The shape of a word, runs shortened: "McDonald's" is AaAa'a, "2024" is 0."""
    marks = "".join("A" if one.isupper() else "a" if one.isalpha() else "0" if one.isdigit() else one for one in word)
    return re.sub(r"(.)\1+", r"\1", marks, flags=re.DOTALL)
