"""The table of a Precompiled normalizer, which SentencePiece models bring along: how much it may write for what it reads."""

import base64

import numpy as np


def growth(charsmap: str) -> float:
    """Most bytes that it writes for a byte of text. ValueError where it is no such table.

    It is the size of a trie (u32), the trie, and texts with a NUL behind each. A character is replaced by the text of the first
    key that it begins with. That is looked up for all characters of one byte and of two; any other takes the longest text at most.
    """
    data = base64.b64decode(charsmap, validate=True)
    size = int.from_bytes(data[:4], "little") // 4 * 4
    if len(data) < 4 + size:
        raise ValueError("its table is cut")
    trie, texts = np.frombuffer(data[4 : 4 + size], "<u4"), data[4 + size :] + b"\0"
    ends = np.flatnonzero(np.frombuffer(texts, np.uint8) == 0)
    single = max(_written(trie, texts, bytes([one])) for one in range(0x80))
    double = max(_written(trie, texts, bytes([one, two])) for one in range(0xC2, 0xE0) for two in range(0x80, 0xC0))
    return max(1.0, single, double / 2, (int(np.diff(ends, prepend=-1).max()) - 1) / 3)


def _written(trie: np.ndarray, texts: bytes, character: bytes) -> int:
    """Bytes of the text that the character becomes; 0 where it stays. The trie is a double array as Darts writes it."""
    place = _offset(_unit(trie, 0))
    for byte in character:
        place ^= byte
        unit = _unit(trie, place)
        if unit & 0x8000_00FF != byte:
            return 0
        place ^= _offset(unit)
        if unit >> 8 & 1:  # a key ends here
            start = _unit(trie, place) & 0x7FFF_FFFF
            return max(0, texts.find(b"\0", start) - start)
    return 0


def _unit(trie: np.ndarray, place: int) -> int:
    return int(trie[place]) if place < len(trie) else 0


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)
