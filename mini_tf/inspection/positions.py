"""Positional encodings of a model: similarity of position vectors, or attention scores over distance.

Encodings of the embedding give position vectors, which are compared with each other; rotary encodings and attention
biases give curves over distance.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.text import Text
from torch import Tensor

from mini_tf.drawing.panel import Curves, Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import curves, heat_map, sentence
from mini_tf.inspection import COMMON, PICTURES, ModelViewSettings, Picture, StackOption, View, ViewOutput, option
from mini_tf.inspection._heads import select_stack, stack_name
from mini_tf.inspection._modules import EncodingOf, PositionAnalysis, PositionVectors, analyze_positions, encoding_of
from mini_tf.inspection._subjects import kept_steps, run_and_step
from mini_tf.nn.model_stack import ModelStack
from mini_tf.run import loading, tensors
from mini_tf.run.checkpoint import OPTIMIZER
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained
from mini_tf.training.divergence import ranges

NO_CURVE = "so there is no curve over distance; `minitf inspect attention` shows the attention weights of a text"
COSINE_SCALE = Scale(-1.0, 1.0, diverging=True, label="cosine similarity")


def _untrained(folder: Path, step: str | None, analysis: PositionAnalysis) -> dict[str, Any]:
    """Rows of a learned table that were never trained, and the evidence; empty without a table.

    Evidence is the optimizer state of the newest checkpoint, or of `step`; else, without a checkpoint or if the table
    is not trained, the context. Raises RunFault if the checkpoint is damaged.
    """
    if analysis.vectors is None or analysis.vectors.table is None:
        return {}
    if kept_steps(folder):
        checkpoint = loading.find_checkpoint(folder, "last" if step is None else step)
        rows = never_trained(tensors.read(checkpoint.folder / OPTIMIZER), analysis.vectors.table)
        if rows is not None:
            return {"never_trained": rows, "never_trained_by": f"the optimizer's state after step {checkpoint.step}"}
    rows = list(range(analysis.context, analysis.vectors.n_positions))
    return {"never_trained": rows, "never_trained_by": "the context"}


def never_trained(state: Mapping[str, Tensor], table: str) -> list[int] | None:
    """Rows of `table` that never had a gradient: their optimizer state (`NAME.MOMENT`) is still zero.

    None if `state`, the tensors of the optimizer, has no rows for the table.
    """
    moments = [tensor for name, tensor in state.items() if name.rpartition(".")[0] == table and tensor.dim() == 2]
    n_rows = max((len(tensor) for tensor in moments), default=0)
    moments = [tensor for tensor in moments if len(tensor) == n_rows]  # other factors have no rows of the table
    return (torch.cat(moments, dim=1) == 0).all(dim=1).nonzero().flatten().tolist() if moments else None


class Settings(StackOption, ModelViewSettings):
    """Show how similar positions are, or how attention scores depend on distance.

    Reports rows of a learned table that were never trained.
    """

    PANEL = COMMON
    ALIASES = ("position", "positional", "position-embeddings", "rope")
    EXAMPLES = ("minitf inspect positions last -o positions.png",)
    FILES = (*PICTURES, ".html", ".json")

    curve: bool = option(False, "--curve")
    """Plot only the curve over distance."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """The positional encoding of a stack, by default the decoder's or only one. self.curve: without the map.

        Raises UsageFault if the model has no such stack.
        """
        selected, encoding, notes = _select_stack(trained, self.stack)
        positions = trained.recipe.model.stacks()[selected.name].positions
        kind, analysis = positions.kind, analyze_positions(trained.model, encoding)
        result = _result(kind, analysis) | _untrained(trained.folder, self.step, analysis)
        result |= {"biases": analysis.biases} if analysis.biases else {}
        over_distance, vectors = _curves(kind, analysis), analysis.vectors
        if over_distance is None:
            if pictures_asked := [file for file in output.files if file.suffix.lower() != ".json"]:
                fault = f"--output {pictures_asked[0]}: {kind} positions have nothing to plot"
                raise UsageFault(fault, hint="`minitf inspect attention` shows the attention weights of a text")
            reason = (
                "it depends on queries and keys" if positions.APPLIES_TO else "this model has no positional encoding"
            )
            return View(result, [partial(sentence, f"positions: {kind}; {reason}, {NO_CURVE}")], notes)
        title, run = f"{kind} positions: cosine similarity of position vectors", run_and_step(trained.folder, self.step)
        pictures: list[Picture] = [
            partial(curves, over_distance),
            *(partial(sentence, text) for text in _sentences(positions.PLOT_NOTE, analysis, result)),
        ]
        if self.curve or vectors is None:
            return View(result, pictures, notes, replace(over_distance, title=f"{over_distance.title}, {run}"))
        panel = _panel("", vectors, len(vectors.positions))
        figure = PanelGrid([panel], COSINE_SCALE, f"{title}, {run}", notes=notes)
        return View(result, [partial(_map, title, vectors), partial(sentence, ""), *pictures], notes, figure)


def _select_stack(trained: Trained, stack: str | None) -> tuple[ModelStack, EncodingOf, list[str]]:
    """The stack of this name, by default the model's first, and a note of the others. UsageFault if there is none."""
    kind, stacks = trained.recipe.model.kind, trained.model.stacks()
    encodings = {
        model_stack: encoding for model_stack in stacks if (encoding := encoding_of(trained.model, model_stack))
    }
    if not encodings:
        raise UsageFault(f"a model of kind {kind} has no embedding with a positional encoding")
    selected = select_stack(encodings, stack, kind)
    others = [stack_name(model_stack) for model_stack in encodings if model_stack != selected]
    note = f"these are the positions of the {stack_name(selected)}; use --stack {' or '.join(others)} for others"
    return selected, encodings[selected], [note] if others and stack is None else []


def _result(kind: str, analysis: PositionAnalysis) -> dict[str, Any]:
    result: dict[str, Any] = {"positions": kind, "context": analysis.context}
    if (vectors := analysis.vectors) is not None:
        similarity = vectors.similarity.tolist()
        result |= {
            "n_positions": vectors.n_positions,
            "position_ids": vectors.positions,
            "similarity": similarity,
            "kernel": vectors.kernel,
        }
    if (rotary := analysis.rotary) is not None:
        never = sum(wavelength > analysis.context for wavelength in rotary.wavelengths)
        result |= {"kernel": rotary.kernel, "wavelengths": rotary.wavelengths, "pairs_that_never_turn_once": never}
    return result


def _panel(title: str, vectors: PositionVectors, most: int) -> Panel:
    """The map of at most `most` positions, evenly spaced."""
    step = -(-len(vectors.positions) // most)
    names = [str(position) for position in vectors.positions[::step]]
    values = vectors.similarity[::step, ::step].numpy()
    return Panel(title, names, names, values, tokens=False, sides=("position", "position"))


def _curves(kind: str, analysis: PositionAnalysis) -> Curves | None:
    if analysis.vectors is not None:
        title, y_label = "attention weights of position vectors", "softmax(p_i.p_j / sqrt d)"
        lines = {"": analysis.vectors.kernel}
    elif analysis.rotary is not None:
        title, y_label = "attention score of equal vectors", "mean of cos(distance * theta)"
        lines = {"": analysis.rotary.kernel}
    elif analysis.biases:
        title, y_label = "attention bias", "bias"
        lines = {f"head {head}": bias for head, bias in enumerate(analysis.biases)}
    else:
        return None
    length = len(next(iter(lines.values())))
    return Curves(f"{kind} positions: {title}", list(range(length)), "distance", y_label, lines)


def _sentences(note: str, analysis: PositionAnalysis, result: dict[str, Any]) -> list[str]:
    sentences = [note] if note else []
    if (rotary := analysis.rotary) is not None:
        short, long = min(rotary.wavelengths), max(rotary.wavelengths)
        sentences.append(
            f"{len(rotary.wavelengths)} frequencies with wavelengths of {short:.3g} to {long:.4g} tokens; "
            f"{result['pairs_that_never_turn_once']} wavelengths exceed the context of {analysis.context}."
        )
    if (rows := result.get("never_trained")) is not None:
        trained = "all were trained" if not rows else f"never trained: {ranges(rows)}"
        sentences.append(f"{result['n_positions']} rows; {trained} (according to {result['never_trained_by']}).")
    return sentences


def _map(title: str, vectors: PositionVectors, *, colored: bool, width: int) -> Text:
    """The map in a terminal: a cell is two characters wide, after the names of the rows."""
    return heat_map(_panel(title, vectors, (width - 8) // 2), COSINE_SCALE, colored=colored, width=width)
