"""What the labels of labelled data are: the classes by name, or how numbers are spread; kept with the model that learnt them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any


@dataclass(frozen=True)
class Labels:
    """names: the classes, in the order of their ids, none where labels are numbers; counts: how often each stands in the training side.

    mean, scale: of labels that are numbers, and the root of their variance there; what is learnt is (number - mean) / scale.
    """

    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {"names": list(self.names), "counts": list(self.counts), "mean": self.mean, "scale": self.scale}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> "Labels":
        """The inverse of `to_json`; ValueError where it is nothing of the kind."""
        names, counts, mean, scale = (given.get(key) for key in ("names", "counts", "mean", "scale"))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError("labels.names must be a list of different names")
        if not isinstance(counts, list) or len(counts) != len(names) or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("labels.counts must be a count for each name")
        if not isinstance(mean, float) or not isinstance(scale, float) or not isfinite(mean) or not 0 < scale < inf:
            raise ValueError("labels.mean and labels.scale must be finite numbers, the scale above 0")
        return cls(tuple(names), tuple(counts), mean, scale)
