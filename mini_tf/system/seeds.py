"""Seeds: every random draw is a function of the recipe's seed and of what it is for, so there is no generator state to save."""

import hashlib
import json


def seed_of(*parts: int | str) -> int:
    """A 64-bit seed for a purpose, the same for ever: seed_of(seed, "refresh", 3). 1 and "1" are different parts."""
    text = json.dumps([part if isinstance(part, str) else int(part) for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
