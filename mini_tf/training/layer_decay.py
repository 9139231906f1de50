"""How deep below the output a parameter lies: with layer-wise decay its rate is lr * decay^depth, so that what a model learnt
first, and what other tasks share, changes least.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, appendix B; Howard and Ruder 2018, arXiv:1801.06146, section 3.2.
"""

import re
from collections.abc import Collection

_LAYER = re.compile(r"(stack|encoder)\.layers\.(\d+)\.")
_EMBEDDING = {"embedding": "stack", "source_embedding": "encoder"}


def depths(names: Collection[str]) -> dict[str, int]:
    """The depth of every parameter of a model: a head's and a last norm's is 0, the last layer's 1, the one before 2, ..., an
    embedding's one more than the first layer's.

    The stacks of an encoder-decoder count from their own tops: every layer of the decoder reads what the last one of the encoder
    gives, so that is no farther from the output. An embedding that both share is the decoder's.
    """
    layers = {name: (found[1], int(found[2])) for name in names if (found := _LAYER.match(name))}
    n_layers = {stack: 1 + max(layer for own, layer in layers.values() if own == stack) for stack, _ in layers.values()}
    found_depths = {name: n_layers[stack] - layer for name, (stack, layer) in layers.items()}
    for name in names:
        stack = _EMBEDDING.get(name.partition(".")[0])
        found_depths.setdefault(name, 0 if stack is None else n_layers.get(stack, 0) + 1)
    return found_depths
