"""Stop strings as the command line writes them: a newline, the commonest of them, is \\n."""

import re
from collections.abc import Sequence

from mini_tf.cli.terminal.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

MOST = 64
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def stops(given: Sequence[str]) -> tuple[str, ...]:
    """The stop strings of all --stop; UsageFault where there are too many, or one is unfit."""
    if len(given) > MOST:
        raise UsageFault(f"--stop: {len(given)} were given; at most {MOST} are taken")
    return tuple(map(unescaped, given))


def unescaped(text: str) -> str:
    """A stop string with its escapes read; UsageFault where it is empty, not UTF-8 or has an unknown escape."""
    refuse_non_utf8([text], "a stop string")
    if not text:
        raise UsageFault("--stop is empty; it would end every text before it begins")

    def read(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise UsageFault(f"--stop {text}: there is no escape {found[0]}", hint="\\n is a newline, \\t a tab, \\\\ a backslash")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.?)", read, text, flags=re.DOTALL)
