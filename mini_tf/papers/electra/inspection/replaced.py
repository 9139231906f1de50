"""The probability that each token of a text was replaced, by a discriminator (ELECTRA).

Source: Clark et al. 2020, arXiv:2003.10555, section 2.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from mini_tf.data.batch import Rows
from mini_tf.drawing.labels import label
from mini_tf.drawing.panel import Marks, Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import heat_map
from mini_tf.inspection import PICTURES, TextViewSettings, View, ViewOutput, option
from mini_tf.inspection._subjects import run_and_step
from mini_tf.inspection._texts import ModelInput, untruncated_input
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.electra.replacement import Replacement
from mini_tf.system.errors import UsageFault
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained

SCALE = Scale(label="probability that the token was replaced")
MARKS = ("replaced", "", "")


@dataclass(frozen=True)
class DetectedText:
    """A text: original ids, the ids that the discriminator gets, and its probability that each was replaced."""

    input: ModelInput
    ids: list[int]
    p: list[float]


class Settings(TextViewSettings):
    """Show the probability of every token of a text that it was replaced (objective replaced_token).

    With --seed the run's generator replaces tokens first, and the originals are shown in brackets.
    """

    ALIASES = ("discriminator", "electra")
    EXAMPLES = (
        'minitf inspect replaced last "The file is closed."',
        'minitf inspect replaced last "The file is closed." --seed 1',
    )
    FILES = (*PICTURES, ".html", ".json")

    seed: int | None = option(None, "--seed", metavar="N", shown="the text as it is", ge=0)
    """First replace tokens as in training, with this random seed."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """A column of probabilities per text. seed: tokens are first replaced, as in training, with this random seed.

        UsageFault if the run's objective does not detect replaced tokens.
        """
        task = trained.task()
        if not isinstance(task, Replacement):
            message = (
                f"{trained.folder.name} was trained with objective {trained.recipe.objective.kind}, which detects no"
                " replaced tokens"
            )
            raise UsageFault(message, hint="minitf pretrain electra-nano trains a model that does")
        detections = [
            _detect(trained, task, text, None if self.seed is None else seed_of("replaced", self.seed, n))
            for n, text in enumerate(self.given_texts)
        ]
        panels = [
            _panel(trained, detected, f"text {n}" if len(detections) > 1 else "")
            for n, detected in enumerate(detections, 1)
        ]
        notes = [f"text {n}: {detected.input.note}" for n, detected in enumerate(detections, 1) if detected.input.note]
        records = [
            {"text": detected.input.text, "n_cut": detected.input.n_cut, "tokens": _records(trained, detected)}
            for detected in detections
        ]
        pictures = [partial(heat_map, panel, SCALE, values=True, max_rows=len(panel.rows)) for panel in panels]
        title = f"Replaced tokens, {run_and_step(trained.folder, self.step)}"
        figure = PanelGrid([panel.transposed for panel in panels], SCALE, title, notes=notes)
        return View({"texts": records, "notes": notes}, pictures, notes, figure)


@torch.no_grad()
def _detect(trained: Trained, task: Replacement, text: str, key: int | None) -> DetectedText:
    input, device = untruncated_input(trained, text).truncate(trained.model.context), trained.setup.device
    ids = torch.tensor([input.ids], device=device)
    with trained.setup.autocast():
        if key is not None:
            array = np.array([input.ids])
            starts = trained.tokenizer.word_starts(array) if trained.objective.needs_word_starts else None
            rows = Rows(array, np.array([key], np.uint64), word_starts=starts)
            ids = task.replace_tokens(trained.objective.prepare(rows).to(device))
        p = task.replaced_probabilities(Tokens(ids))
    return DetectedText(input, ids[0].tolist(), p[0].float().tolist())


def _records(trained: Trained, detected: DetectedText) -> list[dict[str, Any]]:
    pieces, originals = trained.tokenizer.pieces(detected.ids), trained.tokenizer.pieces(detected.input.ids)
    columns = zip(detected.ids, pieces, originals, detected.p, detected.input.ids, strict=True)
    return [
        {"id": id, "token": piece, "original": original, "replaced": id != before, "p": p}
        for id, piece, original, p, before in columns
    ]


def _panel(trained: Trained, detected: DetectedText, title: str) -> Panel:
    """A row per token; the original stands in brackets where it was replaced."""
    records = _records(trained, detected)
    rows = [
        label(record["token"]) + (f" ({label(record['original'])})" if record["replaced"] else "") for record in records
    ]
    squares = frozenset((i, 0) for i, record in enumerate(records) if record["replaced"])
    values = np.array(detected.p).reshape(-1, 1)
    return Panel(title, rows, ["p"], values, tokens=False, marks=Marks(squares, meanings=MARKS), sides=("token", ""))
