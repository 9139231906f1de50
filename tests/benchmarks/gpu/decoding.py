"""generation: tokens a second of one text and of 16, always the most probable token: minitf with CUDA graphs and
without, and plain torch, in turns.

    python -m tests.benchmarks.gpu.decoding 6x384 1 500

The plain loop has a cache of keys and values. All start from the same weights and prompts; `same` says how many of the
first tokens are those of plain torch in all texts, since other kernels round otherwise, and a side whose first SURE
tokens are others fails.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from ..generation import CONTEXT, N_TOKENS, prepare
from ..shapes import SHAPES
from .reports import OWN, reason, tell

ROUNDS = 5
SURE = 16
PLAIN, EAGER = "plain torch, cached", "minitf without graphs"
SIDES = {OWN: "minitf", EAGER: "without graphs", PLAIN: "cached"}
"""Names of the results, and of `prepare`."""


def measure(name: str, rows: int, n_tokens: int = N_TOKENS, rounds: int = ROUNDS) -> None:
    """Report all sides after each round."""
    shape = replace(SHAPES[name], context=CONTEXT)
    key = f"{name} x {rows}"
    try:
        sides = {side: prepare(word, shape, rows)[2] for side, word in SIDES.items()}
        texts = {side: write(n_tokens) or [] for side, write in sides.items()}
        same = {side: equal_tokens(texts[side], texts[PLAIN]) for side in sides}
        if (least := min(same.values())) < min(SURE, n_tokens):
            raise ValueError(f"other tokens than the plain model's, from token {least} on")
    except Exception as error:
        tell(f"{key}:{OWN}", failed=reason(error))
        return
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side, write in [*sides.items()][:: -1 if turn % 2 else 1]:
            began = time.perf_counter()
            write(n_tokens)
            taken[side].append(time.perf_counter() - began)
            median = statistics.median(taken[side])
            tell(f"{key}:{side}", value=rows * n_tokens / median, seconds=taken[side], same=same[side])


def equal_tokens(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    """How many of the first tokens are the same in all texts."""
    columns = zip(*ours, strict=True), zip(*theirs, strict=True)
    return next((i for i, (a, b) in enumerate(zip(*columns, strict=False)) if a != b), len(ours[0]) if ours else 0)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
