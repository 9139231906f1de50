"""Random seeds derived from the recipe's seed and a purpose, so there is no generator state to save."""

import hashlib
import json


def seed_of(*parts: int | str) -> int:
    """A 64-bit seed, a fixed hash of its parts: seed_of(seed, "refresh", 3). 1 and "1" differ."""
    text = json.dumps([part if isinstance(part, str) else int(part) for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
