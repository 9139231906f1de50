"""The table of a logit that is split into its parts."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Picture, View
from mini_tf.inspection.memories.excerpts import excerpt
from mini_tf.inspection.memories.layers import MemoryIndex, memory_layers
from mini_tf.inspection.memories.logit_split import LogitSplit, split_logit, why_not
from mini_tf.inspection.memories.votes import top_votes
from mini_tf.inspection.model_input import untruncated_input
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

N_VOTES = 3


class Part(NamedTuple):
    """One contribution. memory, coefficient: of a memory, else None."""

    name: str
    contribution: float
    memory: MemoryIndex | None = None
    coefficient: float | None = None


def split_view(trained: Trained, text: str, top: int) -> View:
    """The sum over all parts beside the logit, by layer, and the `top` largest contributions.

    Raises UsageFault if the model has no such sum.
    """
    model, objective = trained.model, trained.recipe.objective
    reason = why_not(model) if objective.predicts_tokens else f"objective {objective.kind} predicts no tokens"
    if reason is not None:
        raise UsageFault(f"--text: the logit of {trained.folder.name} is not split: {reason}", hint="leave --text out")
    input = untruncated_input(trained, text).truncate(model.context)
    split = split_logit(model, Tokens(torch.tensor([input.ids], device=trained.setup.device)))
    parts = sorted(parts_of(split, model.stacks()[0].embedding is not None), key=lambda part: -abs(part.contribution))[:top]
    shown = excerpt(trained.tokenizer, input.ids, split.token)
    records = [_record(trained, part) for part in parts]
    result = {
        "text": input.text,
        "n_cut": input.n_cut,
        "token": shown.next,
        "p": split.p,
        "logit": split.logit,
        "sum": split.sum,
        "input": split.input,
        "layers": [_layer(split, layer) for layer in _numbers(split)],
        "norm_bias": split.norm_bias,
        "largest": records,
    }
    notes = [input.note] if input.note else []
    title = f"{shown.shown()} is followed by {label(str(shown.next))} (p {split.p:.3f}), whose logit is a sum over all parts:"
    return View({"split": result, "notes": notes}, [partial(sentence, title), *_tables(split, records)], notes)


def parts_of(split: LogitSplit, embedded: bool) -> Iterator[Part]:
    """All contributions. embedded: the input of the stack is the embedding."""
    yield Part("embedding" if embedded else "input", split.input)
    for name, by_layer in (("attention", split.attention), ("cross-attention", split.cross), ("feed-forward bias", split.bias)):
        yield from (Part(f"{name} {layer}", value) for layer, value in by_layer.items())
    for layer, one in split.memories.items():
        for index, (coefficient, contribution) in enumerate(zip(*one, strict=True)):
            memory = MemoryIndex(layer, index)
            yield Part(f"memory {memory}", float(contribution), memory, float(coefficient))
    yield Part("bias of the final norm", split.norm_bias)


def _numbers(split: LogitSplit) -> list[int]:
    return sorted({*split.attention, *split.cross, *split.memories})


def _layer(split: LogitSplit, layer: int) -> dict[str, Any]:
    memories = split.memories.get(layer)
    return {
        "layer": layer,
        "attention": split.attention.get(layer),
        "cross": split.cross.get(layer),
        "memories": None if memories is None else float(memories.contributions.sum()),
        "active": None if memories is None else int((memories.coefficients > 0).sum()),
        "bias": split.bias.get(layer),
    }


def _record(trained: Trained, part: Part) -> dict[str, Any]:
    memory, votes = part.memory, list[tuple[int, float]]()
    if memory is not None:
        value = memory_layers(trained.model.stacks()[0].stack, trained.folder.name)[memory.layer].values[memory.number]
        votes = top_votes(trained.model, value, N_VOTES)
    pieces = trained.tokenizer.pieces([id for id, _ in votes])
    return {
        "part": part.name,
        "contribution": part.contribution,
        "coefficient": part.coefficient,
        "votes": [{"token": piece, "p": p} for piece, (_, p) in zip(pieces, votes, strict=True)],
    }


def _tables(split: LogitSplit, records: list[dict[str, Any]]) -> Iterator[Picture]:
    names = ("attention", "cross", "memories", "bias")
    layers = [_layer(split, layer) for layer in _numbers(split)]
    shown = [name for name in names if any(one[name] is not None for one in layers)]
    rows = [[str(one["layer"]), *(one[name] for name in shown)] for one in layers]
    yield partial(table, ["layer", *shown], rows)
    rest = f"input {split.input:.3f}" + (f", bias of the final norm {split.norm_bias:.3f}" if split.norm_bias else "")
    yield partial(sentence, f"{rest}. Sum of all parts {split.sum:.4f}, logit {split.logit:.4f}.")
    yield partial(sentence, "")
    votes = ["  ".join(label(vote["token"]) for vote in one["votes"]) for one in records]
    cells = [[one["part"], one["contribution"], one["coefficient"], vote] for one, vote in zip(records, votes, strict=True)]
    yield partial(table, ["largest parts", "contribution", "coefficient", "votes"], cells)
