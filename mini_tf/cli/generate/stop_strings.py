"""Stop strings of the command line, in which \\n is a newline."""

import re
from collections.abc import Sequence

from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

MOST = 64
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def stops(given: Sequence[str]) -> tuple[str, ...]:
    """The stop strings of all --stop options; UsageFault if there are too many or one is invalid."""
    if len(given) > MOST:
        raise UsageFault(f"--stop: {len(given)} strings given, at most {MOST} allowed")
    return tuple(map(unescaped, given))


def unescaped(text: str) -> str:
    """A stop string with escapes replaced; UsageFault if it is empty, not UTF-8 or has an unknown escape."""
    refuse_non_utf8([text], "a stop string")
    if not text:
        raise UsageFault("--stop is empty")

    def read(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise UsageFault(
                f"--stop {text}: unknown escape {found[0]}", hint="\\n is a newline, \\t a tab, \\\\ a backslash"
            )
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.?)", read, text, flags=re.DOTALL)
