"""The text that sides learn from: the one that was given, or the built-in corpus as one plain file."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from .contest import Options, answer


def text_of(options: Options) -> Path:
    """A plain text file; made by `python -m tests.benchmarks.texts` where none was given."""
    return options.text or BUILT_IN


BUILT_IN = Path(tempfile.gettempdir(), "minitf-benchmarks", "python-docs.txt")


def make() -> dict[str, Any]:
    """Write the built-in corpus as text, a blank line between documents."""
    from mini_tf.data.corpora.python_docs import Settings

    BUILT_IN.parent.mkdir(parents=True, exist_ok=True)
    documents = [
        json.loads(line)["text"] for line in Settings().corpus(BUILT_IN.parent).read_text(encoding="utf-8").splitlines()
    ]
    BUILT_IN.write_text("\n\n".join(documents), encoding="utf-8")
    return {"value": BUILT_IN.stat().st_size}


if __name__ == "__main__":
    answer(make, sys.argv[1:])
