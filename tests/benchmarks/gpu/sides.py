"""The sides that are compared on a GPU, by the names that their results have."""

from ..shapes import SHAPES

OWN, PLAIN = "minitf", "plain torch"


def sides_of(shape: str, nanogpt: bool) -> list[str]:
    """minitf comes first, since it measures how many rows fit into memory."""
    peer = ["nanoGPT", "nanoGPT compiled"] if nanogpt and not SHAPES[shape].masked else []
    return [OWN, PLAIN, f"{PLAIN} compiled", *peer]
