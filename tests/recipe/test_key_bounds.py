"""Defaults, bounds and words of every key are as on record; `python -m tests.key_bounds` writes the record anew."""

import json

import key_bounds

from mini_tf.recipe.kinds import listing


def test_defaults_bounds_and_words_of_keys_are_as_on_record():
    now = json.loads(json.dumps(key_bounds.key_bounds()))
    recorded = {key: bounds for key, bounds in json.loads(key_bounds.FILE.read_text()).items() if _is_here(key)}
    changed = {key for key in recorded.keys() | now.keys() if recorded.get(key) != now.get(key)}
    assert {key: (recorded.get(key), now.get(key)) for key in sorted(changed)} == {}


def _is_here(key: str) -> bool:
    """The papers may be absent, and their kinds with them."""
    package, _, word = key.rpartition(".")[0].rpartition("/")
    return not package or word.partition(".")[0] in listing(package)
