"""What a family declares of the architectures of llama.cpp that compute its models."""

from typing import NamedTuple


class GgufArchitecture(NamedTuple):
    """An architecture by llama.cpp's word, which has one activation and one kind of rotation.

    interleaved: pairs of a rotation are adjacent dimensions, not halves; None: it has no rotation. activations: words
    of config.json that it computes. scaled: it reads factors of frequencies. gate: the feed-forward layer has one;
    without, it computes models with gate = up and ReLU, which is ReLU squared; xielu: by the activation xIELU. causal:
    it continues texts; else its output are vectors or classes of texts. classes: the dense layer with tanh and the
    output layer of its classifiers, by their names in the files.
    Source: llama.cpp, src/models.
    """

    word: str
    interleaved: bool | None
    activations: tuple[str, ...]
    scaled: bool = True
    gate: bool = True
    xielu: bool = False
    causal: bool = True
    classes: tuple[str, str] | None = None
