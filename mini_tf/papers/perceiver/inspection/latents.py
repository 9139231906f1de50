"""What the latent vectors of a model attend to, and which outputs attend to them.

    encoder     tokens that each latent attends to: its cross-attention, mean over heads
    decoder     latents that the output at each token attends to, mean over heads and layers
    rollout     tokens that reach each output: A_decoder R A_encoder

R is the rollout through the self-attention of the latents, the product of (I + A) / 2 over its layers: half of a
residual stream is the identity. Source: Abnar and Zuidema 2020, arXiv:2005.00928, section 3; of latents: Jaegle et al.
2021, arXiv:2107.14795, section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mini_tf.drawing.labels import label
from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import heat_map, table
from mini_tf.inspection import PICTURES, TextViewSettings, View, ViewOutput, option
from mini_tf.inspection._capture import Capture
from mini_tf.inspection._subjects import run_and_step
from mini_tf.inspection._texts import capture_heads, tokenize_texts
from mini_tf.nn.model_stack import UNITS, SequenceKind
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

HEADERS = ["latent", "attends to", "entropy", "used by", "use"]


@dataclass(frozen=True, eq=False)
class LatentAttention:
    """encoder (N, L), decoder (outputs, N), rollout (outputs, L): rows sum to 1, those of outputs without latents to 0.

    outputs: their sequence; one per token, or one of the whole row.
    """

    encoder: np.ndarray
    decoder: np.ndarray
    rollout: np.ndarray
    outputs: SequenceKind

    @classmethod
    def of(cls, captured: Capture) -> "LatentAttention | None":
        """None if the model has no latents between its tokens and its outputs."""
        outputs: SequenceKind = next(
            (
                attention.queries
                for attention in captured.attention
                if attention.queries != "latent" and attention.keys == "latent"
            ),
            "input",
        )
        encoder, decoder = _weights(captured, "latent", "input"), _weights(captured, outputs, "latent")
        if not encoder or not decoder:
            return None
        reached = np.mean(encoder, axis=0)
        through = reached
        for layer in _weights(captured, "latent", "latent"):
            through = (through + layer @ through) / 2
        read = np.mean(decoder, axis=0)
        return cls(reached, read, read @ through, outputs)


def _weights(captured: Capture, queries: SequenceKind, keys: SequenceKind) -> list[np.ndarray]:
    """The mean over the heads of each such layer, in the order of the calls."""
    fitting = [attention for attention in captured.attention if (attention.queries, attention.keys) == (queries, keys)]
    return [attention.weights[0, :, :, attention.lead :].double().mean(dim=0).cpu().numpy() for attention in fitting]


class Settings(TextViewSettings):
    """Show which tokens each latent vector attends to, and which outputs attend to it (model perceiver).

    The third map is the attention rollout: which tokens reach each output through all layers. The table has the tokens
    that each latent attends to most, the entropy over tokens (0 to 1), the outputs that use it most, and its share of
    the outputs' attention.
    """

    ALIASES = ("latent",)
    EXAMPLES = (
        'minitf inspect latents last "The file is closed."',
        "minitf inspect latents last -i lines.txt -o latents.png",
    )
    FILES = (*PICTURES, ".html", ".json")

    top: int = option(3, "--top", metavar="N", ge=1, le=100)
    """Tokens per latent in the table."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Three panels per text, and a table of the latents with `n` tokens each. UsageFault if the model has none."""
        records, panels, rows, notes = list[dict[str, Any]](), list[Panel](), list[list[str]](), list[str]()
        for number, text in enumerate(self.given_texts, 1):
            tokenized = tokenize_texts(trained, text)
            attention = LatentAttention.of(capture_heads(trained, tokenized))
            if attention is None:
                message = f"{trained.folder.name} has no latents: its model is of kind {trained.recipe.model.kind}"
                raise UsageFault(message, hint="minitf pretrain perceiver-nano trains a model that has")
            tokens, name = tokenized.inputs.tokens, f"text {number}, " if len(self.given_texts) > 1 else ""
            outputs = tokenized.units(attention.outputs, len(attention.decoder))
            panels += _panels(
                name, attention, [label(token) for token in tokens], [label(output) for output in outputs]
            )
            rows += [
                [f"{name}{i}", *_row(attention, i, tokens, outputs, self.top)] for i in range(len(attention.encoder))
            ]
            maps = {key: getattr(attention, key).tolist() for key in ("encoder", "decoder", "rollout")}
            records.append({"text": tokenized.inputs.input.text, "tokens": tokens, "outputs": outputs, **maps})
            notes += [f"{name}{note}" for note in tokenized.notes]
        scale = Scale(
            label="attention weight, mean over heads", high=max(float(panel.values.max()) for panel in panels)
        )
        pictures = [partial(heat_map, panel, scale, max_rows=len(panel.rows)) for panel in panels]
        # Latents as columns, since they are many; the titles of the axes say what the notes say.
        drawn = [replace(panel.transposed if panel.sides[0] == "latent" else panel, note="") for panel in panels]
        figure = PanelGrid(drawn, scale, f"Latents, {run_and_step(trained.folder, self.step)}", notes=notes)
        return View({"texts": records, "notes": notes}, [*pictures, partial(table, HEADERS, rows)], notes, figure)


def _panels(name: str, attention: LatentAttention, tokens: Sequence[str], outputs: Sequence[str]) -> list[Panel]:
    latents = [str(i) for i in range(len(attention.encoder))]
    which = "the row is the one output" if attention.outputs in UNITS else "rows are outputs at tokens"
    reaching = f"columns tokens that reach {'it' if attention.outputs in UNITS else 'them'}"
    maps = [
        ("encoder", ("latent", "token"), (latents, tokens), "rows are latents, columns tokens"),
        ("decoder", ("output", "latent"), (outputs, latents), f"{which}, columns latents"),
        ("rollout", ("output", "token"), (outputs, tokens), f"{which}, {reaching}"),
    ]
    return [
        Panel(f"{name}{key}", *names, getattr(attention, key), f"{key}: {note}.", tokens=False, sides=sides)
        for key, sides, names, note in maps
    ]


def _row(attention: LatentAttention, latent: int, tokens: Sequence[str], outputs: Sequence[str], n: int) -> list[str]:
    """The tokens that a latent attends to most, their entropy, the outputs that attend to it most, and its share."""
    weights, use = attention.encoder[latent], attention.decoder[:, latent]
    listed = [
        " ".join(f"{label(names[i])} {part[i]:.2f}" for i in np.argsort(-part, kind="stable")[:n])
        for part, names in ((weights, tokens), (use, outputs))
    ]
    entropy = (
        float(-(weights * np.log(np.maximum(weights, 1e-300))).sum() / np.log(len(weights)))
        if len(weights) > 1
        else 0.0
    )
    return [listed[0], f"{entropy:.2f}", listed[1], f"{use.mean():.3f}"]
