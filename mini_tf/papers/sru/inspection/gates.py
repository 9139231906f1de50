"""The gates of a recurrent model on a text, by token and layer: what it keeps, and for how long.

The time constant of a forget gate f is 1 / (1 - f): the number of tokens after which a state has faded to 1 / e.
Source: Lei et al. 2018, arXiv:1709.02755, section 2.
"""

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
from mini_tf.nn.tokens import Tokens
from mini_tf.run.metric_files import curve, read_lines
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

SCALE = Scale(label="mean of the gates of a layer")
SIDES = ("token", "")
QUANTILES = (0.1, 0.5, 0.9)
BINS = 10
"""Bins of the histograms of gates, from 0 to 1."""
FORGOTTEN = 1e-6
"""Smallest 1 - f of a time constant."""


@dataclass(frozen=True)
class LayerGates:
    """Forget and reset gates (L, D) of one layer."""

    layer: int
    forget: np.ndarray
    reset: np.ndarray

    def time_constants(self) -> list[float]:
        """QUANTILES of 1 / (1 - f) over tokens and dimensions, in tokens."""
        constants = 1 / np.maximum(1 - self.forget, FORGOTTEN)
        return [float(value) for value in np.quantile(constants, QUANTILES)]


class Settings(TextViewSettings):
    """Show forget and reset gates of every token and layer (attention sru or srupp).

    The table has the means, the time constants 1 / (1 - forget) in tokens, and the share alpha of attention in SRU++,
    whose values over training are in the JSON output.
    """

    ALIASES = ("gate",)
    EXAMPLES = (
        'minitf inspect gates last "The file is closed."',
        "minitf inspect gates last -i lines.txt -o gates.png",
    )
    FILES = (*PICTURES, ".html", ".json")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Two panels per text, of tokens by layers, and a table of the layers. UsageFault if no layer has gates."""
        records, panels, rows = list[dict[str, Any]](), list[Panel](), list[list[str]]()
        alpha, notes = _alpha(trained), list[str]()
        for n, text in enumerate(self.given_texts, 1):
            input = untruncated_input(trained, text).truncate(trained.generation_context)
            layers, pieces = _gates(trained, input), trained.tokenizer.pieces(input.ids)
            name = f"text {n}, " if len(self.given_texts) > 1 else ""
            for line, gate in enumerate(("forget", "reset")):
                values = np.stack([getattr(layer, gate).mean(axis=1) for layer in layers], axis=1)
                columns = [f"layer {layer.layer}" for layer in layers]
                labels = [label(piece) for piece in pieces]
                panels.append(Panel(f"{name}{gate}", labels, columns, values, tokens=False, sides=SIDES, line=line))
            rows += [_row(name, layer, alpha) for layer in layers]
            records.append(
                {
                    "text": input.text,
                    "n_cut": input.n_cut,
                    "tokens": pieces,
                    "layers": [_record(layer) for layer in layers],
                }
            )
            notes += [f"{name}{input.note}"] if input.note else []
        headers = [
            "layer",
            "forget",
            "reset",
            *(f"1/(1-f), {share:.0%}" for share in QUANTILES),
            *(["alpha"] if alpha else []),
        ]
        pictures = [partial(heat_map, panel, SCALE, values=True, max_rows=len(panel.rows)) for panel in panels]
        title = f"Gates, {run_and_step(trained.folder, self.step)}"
        figure = PanelGrid([panel.transposed for panel in panels], SCALE, title, notes=notes)
        return View(
            {"texts": records, "alpha": alpha, "notes": notes},
            [*pictures, partial(table, headers, rows)],
            notes,
            figure,
        )


@torch.no_grad()
def _gates(trained: Trained, input: ModelInput) -> list[LayerGates]:
    with observed(self_attn_mixers(trained.model)) as tensors:
        if not trained.model.needs_source:
            trained.model(Tokens(torch.tensor([input.ids], device=trained.setup.device)))
    names = ("forget", "reset")
    layers = [
        LayerGates(layer, *(gates[name][0].float().cpu().numpy() for name in names))
        for layer, gates in tensors
        if {*names} <= gates.keys()
    ]
    if not layers:
        kinds = ", ".join(dict.fromkeys(mixer.kind for mixer in trained.recipe.model.mixers()))
        message = f"{trained.folder.name} has no gates: its layers are {kinds}"
        raise UsageFault(message, hint="minitf pretrain sru-nano trains a model that has")
    return layers


def _alpha(trained: Trained) -> dict[str, list[tuple[int, float]]]:
    """The share of attention of each layer during training, (step, alpha), as recorded in metrics.jsonl."""
    path = trained.folder / "metrics.jsonl"
    names = dict.fromkeys(
        key for report in read_lines(path) for key in report if key == "alpha" or key.startswith("alpha.")
    )
    layers = [name for name in names if name != "alpha"] or list(names)
    return {name.removeprefix("alpha.") if name != "alpha" else "all": list(curve(path, name)) for name in layers}


def _row(name: str, layer: LayerGates, alpha: dict[str, list[tuple[int, float]]]) -> list[str]:
    constants = [f"{value:.1f}" for value in layer.time_constants()]
    curve_of = alpha.get(str(layer.layer), alpha.get("all", []))
    row = [f"{name}{layer.layer}", f"{layer.forget.mean():.3f}", f"{layer.reset.mean():.3f}", *constants]
    return [*row, f"{curve_of[-1][1]:.3f}" if curve_of else ""] if alpha else row


def _record(layer: LayerGates) -> dict[str, Any]:
    histograms = {
        f"{gate}_histogram": np.histogram(getattr(layer, gate), BINS, (0, 1))[0].tolist()
        for gate in ("forget", "reset")
    }
    means = {gate: getattr(layer, gate).mean(axis=1).tolist() for gate in ("forget", "reset")}
    constants = dict(zip((f"{share:g}" for share in QUANTILES), layer.time_constants(), strict=True))
    return {"layer": layer.layer, **means, "time_constants": constants, **histograms}
