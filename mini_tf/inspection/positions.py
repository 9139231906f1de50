"""What a model knows of places: how alike their vectors are, and how scores change with distance.

By where the position attaches: vectors that meet the embeddings are compared with each other, turns of queries and keys and biases
of scores are followed over the distance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from rich.text import Text
from torch import Tensor, nn

from mini_tf.drawing.panel import Curves, Panel, Scale, Sheet
from mini_tf.drawing.terminal import curves, heat_map, sentence
from mini_tf.inspection import Picture, View
from mini_tf.inspection.checkpoints import kept_steps, origin
from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.model import Model, ModelStack
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.run import loading, tensors
from mini_tf.run.checkpoint import OPTIMIZER
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained
from mini_tf.training.divergence import ranges

LARGEST_MAP = 64
"""Positions that are compared with each other; of more, so many are taken, evenly spaced."""
LARGEST_KERNEL = 1024
"""Positions that the kernel goes over, from the first on."""
NO_CURVE = "so there is no curve over distance; `minitf inspect attention` shows the attention weights of a text"
COSINES = Scale(-1.0, 1.0, diverging=True, label="cosine")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Position vectors: `n_places` of them, all of a table, or as many as the context has. table: its name in the model, or None.

    similarity: cosines of the `places`, evenly spaced. kernel: softmax_j(p_i.p_j / sqrt(d)) over the places within the context,
    by distance |i - j|, the mean over all pairs so far apart.
    """

    n_places: int
    places: list[int]
    similarity: Float[Tensor, "n n"]
    kernel: list[float]
    table: str | None


@dataclass(frozen=True)
class Turns:
    """Rotary: kernel[d] is the mean over the pairs of dimensions of cos(d * theta), the score of two equal vectors of length 1 that
    stand d tokens apart, all pairs as long as each other. wavelengths: the tokens in which each pair turns once."""

    kernel: list[float]
    wavelengths: list[float]


@dataclass(frozen=True, eq=False)
class Seen:
    """What was found; `biases`: what each head adds to a score, by distance, where nothing else decides it. All empty where the model
    has no positions."""

    context: int
    vectors: Vectors | None = None
    turns: Turns | None = None
    biases: list[list[float]] = field(default_factory=list)


@runtime_checkable
class Turning(Protocol):
    """A position that turns queries and keys; angles: by how much each pair of dimensions turns from a token to the next."""

    def angles(self, device: torch.device) -> Tensor: ...


def has_positions(model: Model, stack: ModelStack) -> bool:
    """Whether the stack's vectors come from an embedding that `look` can look at."""
    return isinstance(dict(model.named_modules()).get(str(stack.embedding)), Embedding)


@torch.inference_mode()
def look(model: Model, part: str = "embedding") -> Seen:
    """Distances and places go as far as the context that the model was trained on. part: which of the model's embeddings is looked at."""
    embedding = model.get_submodule(part)
    assert isinstance(embedding, Embedding)
    name, position, embedded = f"{part}.position", embedding.position, embedding.tokens.weight
    vectors = _vectors(name, position, model.context, embedded) if "embed" in position.attaches else None
    turns = None
    if isinstance(position, Turning):
        angles = position.angles(torch.device("cpu"))  # (pairs,)
        kernel = (torch.arange(model.context)[:, None] * angles).cos().mean(dim=1)
        turns = Turns(kernel.tolist(), (2 * torch.pi / angles).tolist())
    by_distance = "bias" in position.attaches and position.by_distance  # else it needs queries and keys, too
    biases = position.bias(torch.arange(model.context, device=embedded.device)[None]) if by_distance else None
    return Seen(model.context, vectors, turns, [] if biases is None else biases[0].cpu().double().add(0.0).tolist())  # no -0


def _vectors(name: str, position: PositionalEncoding, context: int, embedded: Float[Tensor, "V D"]) -> Vectors:
    tables = [(path, part) for path, part in position.named_modules() if isinstance(part, nn.Embedding)]
    n_places = max((part.num_embeddings for _, part in tables), default=context)
    # What the position makes of nothing: its own part, also where it is concatenated with the embedding and mapped.
    p = position.embed(embedded.new_zeros(1, n_places, embedded.shape[1]), TokenPositions(n_places))[0].cpu().double()
    step = -(-n_places // LARGEST_MAP)
    places = list(range(0, n_places, step))
    units = F.normalize(p[places], dim=-1)
    near = p[: min(context, LARGEST_KERNEL)]
    weights = (near @ near.T / near.shape[1] ** 0.5).softmax(dim=-1)
    table = f"{name}.{tables[0][0]}.weight" if tables else None
    kernel = [torch.cat([weights.diagonal(d), weights.diagonal(-d)]).mean().item() for d in range(len(weights))]
    return Vectors(n_places, places, units @ units.T, kernel, table)


def _untrained(folder: Path, step: str | None, seen: Seen) -> dict[str, Any]:
    """Rows of the table that training never reached, and what says so: the optimizer's state in the newest checkpoint, or in that of
    `step`; where the run keeps no checkpoint, or the optimizer does not train the table, the context.

    Nothing without a table. RunFault where the checkpoint is damaged.
    """
    if seen.vectors is None or seen.vectors.table is None:
        return {}
    if kept_steps(folder):
        checkpoint = loading.find_checkpoint(folder, "last" if step is None else step)
        rows = never_trained(tensors.read(checkpoint.folder / OPTIMIZER), seen.vectors.table)
        if rows is not None:
            return {"never_trained": rows, "never_trained_by": f"the optimizer's state after step {checkpoint.step}"}
    return {"never_trained": list(range(seen.context, seen.vectors.n_places)), "never_trained_by": "the context"}


def never_trained(state: Mapping[str, Tensor], table: str) -> list[int] | None:
    """The rows of `table` that never had a gradient: all that the optimizer keeps of them (`NAME.MOMENT`) is zero, as it begins.

    None where `state`, the optimizer's tensors, keeps nothing row by row of the table.
    """
    kept = [tensor for name, tensor in state.items() if name.rpartition(".")[0] == table and tensor.dim() == 2]
    n_rows = max((len(tensor) for tensor in kept), default=0)
    kept = [tensor for tensor in kept if len(tensor) == n_rows]  # factors of another shape are of no row
    return (torch.cat(kept, dim=1) == 0).all(dim=1).nonzero().flatten().tolist() if kept else None


def view(trained: Trained, stack: str | None, step: str | None, curve: bool) -> View:
    """The positions of the stack of this name, by default the model's own. curve: the curve alone, where there is a map too.

    UsageFault where the model has no such stack.
    """
    chosen = _chosen(trained, stack)
    positions = trained.recipe.model.stacks()[chosen.name].positions
    kind, seen = positions.kind, look(trained.model, str(chosen.embedding))
    result = _result(kind, seen) | _untrained(trained.folder, step, seen) | ({"biases": seen.biases} if seen.biases else {})
    over_distance, vectors = _curves(kind, seen), seen.vectors
    if over_distance is None:
        reason = "the scores they change depend on queries and keys, too" if positions.ATTACHES else "this model is given no positions"
        return View(result, [partial(sentence, f"positions: {kind}; {reason}, {NO_CURVE}")])
    title, run = f"{kind} positions: cosine of the vectors of two positions", origin(trained.folder, step)
    pictures: list[Picture] = [] if vectors is None or curve else [partial(_map, title, vectors), partial(sentence, "")]
    pictures += [partial(curves, over_distance), *(partial(sentence, said) for said in _sentences(positions.ABOUT, seen, result))]
    if curve or vectors is None:
        return View(result, pictures, figure=replace(over_distance, title=f"{over_distance.title}, {run}"))
    return View(result, pictures, figure=Sheet([_panel("", vectors, len(vectors.places))], COSINES, f"{title}, {run}"))


def _chosen(trained: Trained, stack: str | None) -> ModelStack:
    """The stack of this name, by default the model's own; UsageFault where it has none such."""
    stacks = {one.attention.partition(".")[0]: one for one in trained.model.stacks() if has_positions(trained.model, one)}
    if not stacks:
        raise UsageFault(f"a model of the kind {trained.recipe.model.kind} declares no embedding whose positions could be shown")
    if stack is not None and len(stacks) == 1:
        raise UsageFault(f"--stack {stack}: a model of the kind {trained.recipe.model.kind} has one stack", hint="leave it out")
    if stack is not None and stack not in stacks:
        raise UsageFault(f"--stack {stack}: must be {' or '.join(sorted(stacks))}")
    return stacks[stack] if stack is not None else next(iter(stacks.values()))


def _result(kind: str, seen: Seen) -> dict[str, Any]:
    result: dict[str, Any] = {"positions": kind, "context": seen.context}
    if (vectors := seen.vectors) is not None:
        similarity = vectors.similarity.tolist()
        result |= {"n_places": vectors.n_places, "places": vectors.places, "similarity": similarity, "kernel": vectors.kernel}
    if (turns := seen.turns) is not None:
        never = sum(wavelength > seen.context for wavelength in turns.wavelengths)
        result |= {"kernel": turns.kernel, "wavelengths": turns.wavelengths, "pairs_that_never_turn_once": never}
    return result


def _panel(title: str, vectors: Vectors, most: int) -> Panel:
    """At most so many of the places, evenly spaced."""
    step = -(-len(vectors.places) // most)
    names = [str(place) for place in vectors.places[::step]]
    values = vectors.similarity[::step, ::step].numpy()
    return Panel(title, names, names, values)


def _curves(kind: str, seen: Seen) -> Curves | None:
    if seen.vectors is not None:
        title, y_label, lines = "attention weight by positions alone", "softmax(p_i.p_j / sqrt d)", {"": seen.vectors.kernel}
    elif seen.turns is not None:
        title, y_label, lines = "score of two equal vectors", "mean of cos(distance * theta)", {"": seen.turns.kernel}
    elif seen.biases:
        title, y_label = "what is added to a score", "bias"
        lines = {f"head {head}": bias for head, bias in enumerate(seen.biases)}
    else:
        return None
    length = len(next(iter(lines.values())))
    return Curves(f"{kind} positions: {title}", list(range(length)), "distance", y_label, lines)


def _sentences(about: str, seen: Seen, result: dict[str, Any]) -> list[str]:
    found = [about] if about else []
    if (turns := seen.turns) is not None:
        short, long = min(turns.wavelengths), max(turns.wavelengths)
        found.append(
            f"{len(turns.wavelengths)} pairs of dimensions turn once in {short:.3g} to {long:.4g} tokens; "
            f"{result['pairs_that_never_turn_once']} never turn once within the context of {seen.context}."
        )
    if (rows := result.get("never_trained")) is not None:
        said = "every row was trained" if not rows else f"never trained: {ranges(rows)}"
        found.append(f"{result['n_places']} rows; {said} (by {result['never_trained_by']}).")
    return found


def _map(title: str, vectors: Vectors, *, colored: bool, width: int) -> Text:
    """In a terminal a cell is two characters wide, and names stand before the rows."""
    return heat_map(_panel(title, vectors, (width - 8) // 2), COSINES, colored=colored, width=width)
