"""Contextual embeddings of one word in several sentences: cosine similarity per layer, corrected for anisotropy.

A word's vector is the mean over its tokens. From cosine similarities the baseline is subtracted: the mean over all
pairs of different words in different sentences. Source: Ethayarajh 2019, arXiv:1909.00512, sections 3.3 and 4.1.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing import terminal
from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.inspection import View
from mini_tf.inspection.capture import capture
from mini_tf.inspection.checkpoints import run_and_step
from mini_tf.inspection.model_input import ModelInput, untruncated_input
from mini_tf.inspection.sentences import Sentence, find_word, word_spans
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import SequenceKind
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import MinitfError, UsageFault
from mini_tf.trained.opening import Trained

MAX_PANELS = 4
METRICS = ("cosine", "baseline", "corrected", "separation")
"""Metrics of a layer, in JSON and in the table."""
LEGEND = (
    "Mean cosine similarities. cosine: between sentences; baseline: of different words; corrected: cosine - baseline"
)
SEPARATION_LEGEND = "; separation: within senses - between senses"


@dataclass(frozen=True, eq=False)
class LayerSimilarity:
    """cosines (N, N): uncorrected cosine similarity of the word's vectors; layer 0 is the embedding.

    baseline: NaN without pairs. separation: mean cosine similarity within senses minus between senses; None without
    such pairs.
    """

    number: int
    cosines: Float[Tensor, "N N"]
    baseline: float
    separation: float | None

    @property
    def cosine(self) -> float:
        """Mean over the pairs."""
        return self.cosines[~torch.eye(len(self.cosines), dtype=torch.bool)].mean().item()

    @property
    def corrected(self) -> float:
        return self.cosine - self.baseline


class Occurrence(NamedTuple):
    """The first occurrence of the word in a sentence: its characters, the indices of its tokens, and the model input.

    n_occurrences: in the sentence.
    """

    span: tuple[int, int]
    tokens: list[int]
    input: ModelInput
    n_occurrences: int = 1


def find_occurrence(
    to_input: Callable[[str], ModelInput], context: int, word: str, sentence: Sentence, fault: type[MinitfError]
) -> Occurrence:
    """The first occurrence of the word. Raises `fault` if there is none within the context."""
    spans = find_word(sentence.text, word)
    if not spans:
        raise fault(
            f"{sentence.where}: the word {word!r} does not occur in it", hint="whole words are matched, with case"
        )
    input = to_input(sentence.text)
    tokens = input.tokens_of(*spans[0])
    if not tokens:
        raise fault(f"{sentence.where}: the tokenizer drops {word!r}")
    kept = input.truncate(context)
    if kept.n_cut and tokens[-1] >= len(kept.ids) - kept.n_behind:
        closing = ", its closing token included" if kept.n_behind else ""
        what = f"{word!r} ends at token {tokens[-1] + 1}, but the model's context is {context}{closing}"
        raise fault(f"{sentence.where}: {what}", hint="shorten the text before it")
    return Occurrence(spans[0], tokens, kept, len(spans))


@torch.inference_mode()
def compare_occurrences(
    model: Model, sentences: Sequence[Sentence], occurrences: Sequence[Occurrence], as_source: bool = False
) -> list[LayerSimilarity]:
    """Similarity of the word's vectors in two or more sentences, by layer.

    Uses the first stack of the model's tokens, or with `as_source` of the source's. Raises UsageFault if there is none.
    """
    rows: SequenceKind = "source" if as_source else "own"
    if not any(one.rows == rows for one in model.stacks()):
        stacks = ", ".join(f"{one.name}: {one.rows}" for one in model.stacks())
        raise UsageFault(
            f"no stack of the model has hidden states of the {'source' if as_source else 'text'}'s tokens ({stacks})"
        )
    device = next(model.parameters()).device
    unused = Tokens(
        torch.zeros(1, 1, dtype=torch.long, device=device)
    )  # a decoder input, whose hidden states are not used
    vectors: list[Tensor] = []
    types: list[str] = []
    numbers: list[int] = []
    own: list[int] = []  # indices of the word's vectors, one per sentence
    for number, (sentence, found) in enumerate(zip(sentences, occurrences, strict=True)):
        text = Tokens(torch.tensor([found.input.ids], device=device))
        captured = capture(model, unused, text) if as_source else capture(model, text)
        layers = (
            torch.cat(next(stack.layers for stack in captured.hidden if stack.rows == rows)).cpu().double()
        )  # (n_layers + 1, L, D)
        others = [span for span in word_spans(sentence.text) if span[1] <= found.span[0] or span[0] >= found.span[1]]
        for span in [found.span, *others]:
            if tokens := found.input.tokens_of(*span):
                own += [len(vectors)] if span == found.span else []
                vectors.append(layers[:, tokens].mean(dim=1))
                types.append(sentence.text[slice(*span)].casefold())
                numbers.append(number)
    units = F.normalize(torch.stack(vectors, dim=1), dim=-1)  # (n_layers + 1, words, D)
    senses = [sentence.sense for sentence in sentences]
    return [
        LayerSimilarity(
            n, cosines := unit[own] @ unit[own].T, _baseline(unit, types, numbers), _separation(cosines, senses)
        )
        for n, unit in enumerate(units)
    ]


def _baseline(units: Float[Tensor, "words D"], types: Sequence[str], sentences: Sequence[int]) -> float:
    """Mean cosine similarity of different words in different sentences; NaN if there are none.

    The sum over all pairs within a group is the squared norm of the group's sum, so pairs are not enumerated: all pairs
    - pairs within a sentence - pairs of the same word + pairs that are both.
    """
    groupings: list[tuple[int, Sequence[Hashable]]] = [
        (1, [0] * len(types)),
        (-1, sentences),
        (-1, types),
        (1, list(zip(types, sentences, strict=True))),
    ]
    total, count = 0.0, 0
    for sign, keys in groupings:
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for i, key in enumerate(keys):
            groups[key].append(i)
        total += sign * sum(units[members].sum(dim=0).square().sum().item() for members in groups.values())
        count += sign * sum(len(members) ** 2 for members in groups.values())
    return total / count if count else float("nan")


def _separation(cosines: Tensor, senses: Sequence[str | None]) -> float | None:
    """Mean cosine similarity within senses minus between senses, over pairs with known senses."""
    pairs = [(i, j) for i in range(len(senses)) for j in range(i) if senses[i] is not None and senses[j] is not None]
    within = [cosines[i, j].item() for i, j in pairs if senses[i] == senses[j]]
    between = [cosines[i, j].item() for i, j in pairs if senses[i] != senses[j]]
    return sum(within) / len(within) - sum(between) / len(between) if within and between else None


def view(
    trained: Trained,
    word: str,
    sentences: Sequence[Sentence],
    layer: int | None,
    fault: type[MinitfError],
    step: str | None = None,
) -> View:
    """The word in two or more sentences, by layer. layer: whose pairs are plotted; fault: as in `find_occurrence`.

    step: value of --step, for the title.
    """
    as_source = trained.model.needs_source
    tokenizer = trained.source_tokenizer if as_source else trained.tokenizer
    found = [
        find_occurrence(partial(untruncated_input, trained), trained.model.context, word, one, fault)
        for one in sentences
    ]
    layers = compare_occurrences(trained.model, sentences, found, as_source)
    if layer is not None and not -len(layers) <= layer < len(layers):
        raise UsageFault(
            f"--layer {layer}: must be 0 (the embedding) to {len(layers) - 1}, or -1 to {-len(layers)} from the end"
        )
    notes = _notes(tokenizer, word, layers, sentences, found)
    result = {
        "word": word,
        "texts": [_record(tokenizer, *pair) for pair in zip(sentences, found, strict=True)],
        "layers": [
            {"layer": one.number} | {name: getattr(one, name) for name in METRICS} | {"pairs": one.cosines.tolist()}
            for one in layers
        ],
        "notes": notes,
    }
    numbered = [
        f"{n:>3}  {'' if one.sense is None else f'{one.sense}: '}{one.text}" for n, one in enumerate(sentences, 1)
    ]
    separated = any(one.separation is not None for one in layers)
    columns, legend = (METRICS, LEGEND + SEPARATION_LEGEND) if separated else (METRICS[:-1], LEGEND)
    rows = [
        [f"{one.number}{' (embedding)' * (one.number == 0)}", *(getattr(one, name) for name in columns)]
        for one in layers
    ]
    panel, gap = _panel(word, sentences, layers[-1 if layer is None else layer]), partial(terminal.sentence, "")
    metrics = [partial(terminal.table, ["layer", *columns], rows), partial(terminal.sentence, f"{legend}.")]
    heat_map = partial(terminal.heat_map, panel, _scale([panel]), values=True)
    pictures = [*(partial(terminal.line, text) for text in numbered), gap, *metrics, gap, heat_map]
    figure = _figure(word, sentences, layers, layer)
    return View(result, pictures, notes, replace(figure, title=f"{figure.title}, {run_and_step(trained.folder, step)}"))


def _record(tokenizer: Tokenizer, sentence: Sentence, found: Occurrence) -> dict[str, Any]:
    pieces = tokenizer.pieces([found.input.ids[i] for i in found.tokens])
    record = {
        "text": sentence.text,
        "sense": sentence.sense,
        "characters": list(found.span),
        "occurrences": found.n_occurrences,
    }
    return record | {
        "tokens": found.tokens,
        "pieces": pieces,
        "n_tokens": len(found.input.ids),
        "n_cut": found.input.n_cut,
    }


def _notes(
    tokenizer: Tokenizer,
    word: str,
    layers: Sequence[LayerSimilarity],
    sentences: Sequence[Sentence],
    found: Sequence[Occurrence],
) -> list[str]:
    notes = [
        f"{sentence.where}: {word!r} occurs {n} times; the first, at characters {one.span[0]} to {one.span[1] - 1}, is"
        " compared"
        for sentence, one in zip(sentences, found, strict=True)
        if (n := one.n_occurrences) > 1
    ]
    notes += [
        f"{sentence.where}: {one.input.note}" for sentence, one in zip(sentences, found, strict=True) if one.input.note
    ]
    ways = {tuple(tokenizer.pieces([one.input.ids[i] for i in one.tokens])) for one in found}
    if len(ways) > 1:
        examples = ", ".join(" ".join(map(repr, way)) for way in sorted(ways)[:4])
        notes.append(f"the word is tokenized in {len(ways)} ways, so its vectors differ already at layer 0: {examples}")
    if layers[0].baseline != layers[0].baseline:
        notes.append("no baseline: no pair of different words in different sentences")
    return notes


def _panel(word: str, sentences: Sequence[Sentence], layer: LayerSimilarity) -> Panel:
    """Corrected cosine similarities between sentences; the diagonal is blank."""
    values = layer.cosines.numpy() - np.nan_to_num(layer.baseline)
    names = [
        f"{number} {sentence.text if sentence.sense is None else sentence.sense}"
        for number, sentence in enumerate(sentences, 1)
    ]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    return Panel(
        f"{word}: layer {layer.number}",
        names,
        numbers,
        np.where(np.eye(len(names), dtype=bool), np.nan, values),
        tokens=False,
    )


def _scale(panels: Sequence[Panel]) -> Scale:
    values = np.stack([panel.values for panel in panels])
    return Scale(float(np.nanmin(values)), float(np.nanmax(values)), label="cosine similarity - baseline")


def _figure(
    word: str, sentences: Sequence[Sentence], layers: Sequence[LayerSimilarity], layer: int | None
) -> PanelGrid:
    """A panel for the given layer, else for up to MAX_PANELS evenly spaced layers."""
    n, last = min(len(layers), MAX_PANELS), len(layers) - 1
    selected = [layers[layer]] if layer is not None else [layers[round(i * last / max(1, n - 1))] for i in range(n)]
    panels = [_panel(word, sentences, one) for one in selected]
    title = f"{word} in {len(sentences)} sentences"
    if layer is None and len(selected) < len(layers):
        title += f", layers {', '.join(str(one.number) for one in selected)} of 0-{last}"
    return PanelGrid(panels, _scale(panels), title)
