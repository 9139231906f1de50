"""How long each token of a text stays in memory (attention expire_span), by layer, and the memory in use.

Source: Sukhbaatar et al. 2021, arXiv:2105.06548, figures 5 and 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from mini_tf.drawing.labels import label
from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import heat_map, table
from mini_tf.inspection import PICTURES, TextViewSettings, View, ViewOutput
from mini_tf.inspection._capture import observed, self_attn_mixers
from mini_tf.inspection._subjects import run_and_step
from mini_tf.inspection._texts import ModelInput, untruncated_input
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

SIDES = ("token", "")
HEADERS = ["layer", "mean span", "longest", "memory, ideal", "most", "memory, real", "most", "dropped"]


@dataclass(frozen=True)
class LayerSpans:
    """Spans (L,) of the tokens of a text that is read in blocks; ends: the token after each block."""

    layer: int
    spans: np.ndarray
    ramp: int
    ends: Sequence[int]

    @property
    def ideal(self) -> np.ndarray:
        """(L,): tokens that the token after each token sees."""
        age = np.arange(1, len(self.spans) + 1)[:, None] - np.arange(len(self.spans))
        visible: np.ndarray = ((age > 0) & (self.spans + self.ramp > age)).sum(axis=1)
        return visible

    @property
    def real(self) -> np.ndarray:
        """(L,): tokens kept at each token: what is expired is dropped at the end of a block."""
        kept, before, first = np.zeros(len(self.spans), int), 0, 0
        for end in self.ends:
            kept[first:end] = before + np.arange(1, end - first + 1)
            before, first = int(self.ideal[end - 1]), end
        return kept

    @property
    def dropped(self) -> list[int]:
        """Tokens dropped at the end of each block."""
        return [int(self.real[end - 1] - self.ideal[end - 1]) for end in self.ends]


class Settings(TextViewSettings):
    """Show the span of every token and layer, and the memory in use (attention expire_span).

    A text longer than the context is read in blocks, as in training. The table has the tokens that the next token sees
    (ideal), those that are kept (real), and how many were dropped at the ends of blocks.
    """

    ALIASES = ("span",)
    EXAMPLES = (
        'minitf inspect spans last "The file is closed."',
        "minitf inspect spans last -i lines.txt -o spans.png",
    )
    FILES = (*PICTURES, ".html", ".json")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Two panels per text: spans, and memory in use, of tokens by layers. UsageFault if no tokens expire."""
        records, panels, rows, notes = list[dict[str, Any]](), list[Panel](), list[list[str]](), list[str]()
        for n, text in enumerate(self.given_texts, 1):
            input = untruncated_input(trained, text).truncate(trained.generation_context)
            layers, pieces = _spans(trained, input), trained.tokenizer.pieces(input.ids)
            name, labels = f"text {n}, " if len(self.given_texts) > 1 else "", [label(piece) for piece in pieces]
            columns = [f"layer {layer.layer}" for layer in layers]
            of_title = {"spans": [layer.spans for layer in layers], "memory": [layer.real for layer in layers]}
            for line, (title, parts) in enumerate(of_title.items()):
                values = np.stack(parts, axis=1).astype(float)
                panels.append(Panel(f"{name}{title}", labels, columns, values, tokens=False, sides=SIDES, line=line))
            rows += [_row(name, layer) for layer in layers]
            records.append(
                {
                    "text": input.text,
                    "n_cut": input.n_cut,
                    "tokens": pieces,
                    "layers": [_record(layer) for layer in layers],
                }
            )
            notes += [f"{name}{input.note}"] if input.note else []
        scale = Scale(high=max(float(panel.values.max()) for panel in panels), label="tokens")
        pictures = [partial(heat_map, panel, scale, values=True, max_rows=len(panel.rows)) for panel in panels]
        title = f"Spans, {run_and_step(trained.folder, self.step)}"
        figure = PanelGrid([panel.transposed for panel in panels], scale, title, notes=notes)
        return View({"texts": records, "notes": notes}, [*pictures, partial(table, HEADERS, rows)], notes, figure)


@torch.no_grad()
def _spans(trained: Trained, input: ModelInput) -> list[LayerSpans]:
    """The text is read as in training: in blocks of the context, with the state of the blocks before."""
    model, parts, ramps = trained.model, dict[int, list[np.ndarray]](), dict[int, int]()
    ends = [*range(model.context, len(input.ids), model.context), len(input.ids)]
    state: State | None = model.start(1) if trained.recipe.model.causal and not model.needs_source else None
    with observed(self_attn_mixers(model)) as tensors:
        for first, end in zip([0, *ends], ends, strict=False):
            if state is not None:
                ids = torch.tensor([input.ids[first:end]], device=trained.setup.device)
                state = model.carry(model(Tokens(ids), state=state).state)
    for layer, named in tensors:
        if "spans" in named:
            parts.setdefault(layer, []).append(named["spans"][0].float().cpu().numpy())
            ramps[layer] = int(named["ramp"][0])
    if not parts:
        kinds = ", ".join(dict.fromkeys(mixer.kind for mixer in trained.recipe.model.mixers()))
        message = f"{trained.folder.name} has no spans: its layers are {kinds}"
        raise UsageFault(message, hint="model.attention.kind=expire_span with train.stream=true trains one that has")
    return [LayerSpans(layer, np.concatenate(spans), ramps[layer], ends) for layer, spans in parts.items()]


def _row(name: str, layer: LayerSpans) -> list[str]:
    numbers = [
        layer.spans.mean(),
        layer.spans.max(),
        layer.ideal.mean(),
        layer.ideal.max(),
        layer.real.mean(),
        layer.real.max(),
    ]
    return [f"{name}{layer.layer}", *(f"{number:.1f}" for number in numbers), str(sum(layer.dropped))]


def _record(layer: LayerSpans) -> dict[str, Any]:
    memory = {"ideal": layer.ideal.tolist(), "real": layer.real.tolist()}
    return {
        "layer": layer.layer,
        "ramp": layer.ramp,
        "spans": layer.spans.tolist(),
        "memory": memory,
        "dropped": layer.dropped,
    }
