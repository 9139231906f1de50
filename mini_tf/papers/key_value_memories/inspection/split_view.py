"""The table of a logit that is split into its parts."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Picture, View
from mini_tf.inspection.memory_layers import MemoryIndex, memory_layers
from mini_tf.inspection.model_input import untruncated_input
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.key_value_memories.inspection.excerpts import excerpt
from mini_tf.papers.key_value_memories.inspection.logit_split import LogitSplit, split_logit, why_not
from mini_tf.papers.key_value_memories.inspection.votes import top_votes
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

N_VOTES = 3
"""Tokens of each memory."""
ROUNDING = 1e-4
"""Largest difference of sum and logit, as a share of the absolute contributions."""


def split_view(trained: Trained, text: str, top: int) -> View:
    """All parts by layer, their sum beside the logit, and the `top` memories with the largest contributions.

    Raises UsageFault if the logit is no sum of parts.
    """
    model, objective = trained.model, trained.recipe.objective
    reason = why_not(model) if "tokens" in objective.predicts else f"objective {objective.kind} predicts no tokens"
    if reason is not None:
        raise UsageFault(f"--text: the logit of {trained.folder.name} is not split: {reason}", hint="leave --text out")
    input = untruncated_input(trained, text).truncate(model.context)
    split = split_logit(model, Tokens(torch.tensor([input.ids], device=trained.setup.device)))
    if not abs(split.sum - split.logit) <= ROUNDING * split.size:
        reason = (
            f"its parts sum to {split.sum:.4f}, but it is {split.logit:.4f}: the model also adds other vectors to the"
            " residual stream"
        )
        raise UsageFault(f"--text: the logit of {trained.folder.name} is not split: {reason}", hint="leave --text out")
    shown, notes = excerpt(trained.tokenizer, input.ids, split.token), [input.note] if input.note else []
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
        "memories": list(_largest(trained, split, top)),
    }
    title = (
        f"{shown.shown()} is followed by {label(str(shown.next))} (p {split.p:.3f}), whose logit is a sum over all"
        " parts:"
    )
    embedded = model.stacks()[0].embedding is not None
    return View({"split": result, "notes": notes}, [partial(sentence, title), *_tables(split, result, embedded)], notes)


def _largest(trained: Trained, split: LogitSplit, top: int) -> Iterator[dict[str, Any]]:
    layers = memory_layers(trained.model.stacks()[0].stack, trained.folder.name) if split.memories else {}
    found = [
        (MemoryIndex(layer, number), float(coefficient), float(contribution))
        for layer, one in split.memories.items()
        for number, (coefficient, contribution) in enumerate(zip(*one, strict=True))
    ]
    for memory, coefficient, contribution in sorted(found, key=lambda one: (-abs(one[2]), one[0]))[:top]:
        votes = top_votes(trained.model, layers[memory.layer].values[memory.number], N_VOTES)
        pieces = trained.tokenizer.pieces([id for id, _ in votes])
        yield {
            "layer": memory.layer,
            "memory": memory.number,
            "coefficient": coefficient,
            "contribution": contribution,
            "votes": [{"token": piece, "p": p} for piece, (_, p) in zip(pieces, votes, strict=True)],
        }


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


def _tables(split: LogitSplit, result: dict[str, Any], embedded: bool) -> Iterator[Picture]:
    """embedded: the input of the stack is the embedding."""
    layers, memories = result["layers"], result["memories"]
    shown = [
        name for name in ("attention", "cross", "memories", "bias") if any(one[name] is not None for one in layers)
    ]
    yield partial(table, ["layer", *shown], [[str(one["layer"]), *(one[name] for name in shown)] for one in layers])
    rest = f"{'Embedding' if embedded else 'Input'} {split.input:.3f}"
    rest += f", bias of the final norm {split.norm_bias:.3f}" if split.norm_bias else ""
    yield partial(sentence, f"{rest}. Sum of all parts {split.sum:.4f}, logit {split.logit:.4f}.")
    if memories:
        rows: list[list[str | float | None]] = []
        for one in memories:
            votes = "  ".join(label(vote["token"]) for vote in one["votes"])
            rows.append([f"{one['layer']}:{one['memory']}", one["contribution"], one["coefficient"], votes])
        yield partial(sentence, "")
        yield partial(table, ["memory", "contribution", "coefficient", "votes"], rows)
