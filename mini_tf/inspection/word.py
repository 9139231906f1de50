"""One word in several sentences: how alike its vectors are after each layer, beyond what any two words are.

A word's vector is the mean over its pieces. All vectors of a layer may point into one direction (anisotropy), so the cosines are
corrected by the baseline: the mean cosine of two different words of different sentences, over all such pairs, which is what pairs
drawn at random come to. Source: Ethayarajh 2019, arXiv:1909.00512, sections 3.3 and 4.1.
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
from mini_tf.drawing.panel import Panel, Scale, Sheet
from mini_tf.inspection import View
from mini_tf.inspection.capture import capture
from mini_tf.inspection.checkpoints import origin
from mini_tf.inspection.framing import Framed, framed_whole
from mini_tf.inspection.sentences import Sentence, find_word, word_spans
from mini_tf.nn.model import Model, Represents
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import MinitfError, UsageFault
from mini_tf.trained.opening import Trained

MOST_PANELS = 4
FIGURES = ("cosine", "baseline", "corrected", "separation")
"""Of a layer, as JSON and the table have them."""


@dataclass(frozen=True, eq=False)
class Layer:
    """cosines (N, N) of the word in each pair of sentences, as they are; layer 0 is the embedding. NaN where nothing is to compare.

    separation: the mean cosine within a sense minus that between senses (the baseline cancels out); None without such pairs.
    """

    number: int
    cosines: Float[Tensor, "N N"]
    baseline: float
    separation: float | None

    @property
    def cosine(self) -> float:
        """The mean over the pairs."""
        return self.cosines[~torch.eye(len(self.cosines), dtype=torch.bool)].mean().item()

    @property
    def corrected(self) -> float:
        return self.cosine - self.baseline


class Occurrence(NamedTuple):
    """Where the word stands: the characters of its sentence, the indices of its tokens, and the text as the model reads it.

    of: how many occurrences the sentence has; this is the first.
    """

    span: tuple[int, int]
    tokens: list[int]
    given: Framed
    of: int = 1


def locate(frame: Callable[[str], Framed], context: int, word: str, sentence: Sentence, fault: type[MinitfError]) -> Occurrence:
    """The word's first occurrence, within the context; `fault` is raised where there is none. frame: a text as the model reads it."""
    spans = find_word(sentence.text, word)
    if not spans:
        raise fault(f"{sentence.where}: the word {word!r} does not stand in it", hint="case counts, and so do endings")
    given = frame(sentence.text)
    tokens = given.within(*spans[0])
    if not tokens:
        raise fault(f"{sentence.where}: the tokenizer leaves {word!r} out")
    if tokens[-1] >= context:
        said = f"{word!r} ends with token {tokens[-1] + 1}, but the model reads the first {context}"
        raise fault(f"{sentence.where}: {said}", hint="shorten what stands before")
    return Occurrence(spans[0], tokens, given.cut(context), len(spans))


@torch.inference_mode()
def study(model: Model, sentences: Sequence[Sentence], occurrences: Sequence[Occurrence], as_source: bool = False) -> list[Layer]:
    """How alike the word's vectors are in each pair of two or more sentences, by layer.

    Of the first stack whose rows are tokens of the model's own text; as_source: of a source. UsageFault where no stack has such rows.
    """
    read: Represents = "source" if as_source else "own"
    if not any(one.rows == read for one in model.stacks()):
        has = ", ".join(f"{one.name}: {one.rows}" for one in model.stacks())
        raise UsageFault(f"no stack of the model has a row for each token of the {'source' if as_source else 'text'} ({has})")
    device = next(model.parameters()).device
    unread = Tokens(torch.zeros(1, 1, dtype=torch.long, device=device))  # a decoder that reads something, whatever: nothing of it is used
    vectors: list[Tensor] = []
    types: list[str] = []
    numbers: list[int] = []
    own: list[int] = []  # which of the vectors are the word's, a sentence each
    for number, (sentence, found) in enumerate(zip(sentences, occurrences, strict=True)):
        text = Tokens(torch.tensor([found.given.ids], device=device))
        seen = capture(model, unread, text) if as_source else capture(model, text)
        layers = torch.cat(next(stack.layers for stack in seen.hidden if stack.rows == read)).cpu().double()  # (n_layers + 1, L, D)
        others = [span for span in word_spans(sentence.text) if span[1] <= found.span[0] or span[0] >= found.span[1]]
        for span in [found.span, *others]:
            if tokens := found.given.within(*span):
                own += [len(vectors)] if span == found.span else []
                vectors.append(layers[:, tokens].mean(dim=1))
                types.append(sentence.text[slice(*span)].casefold())
                numbers.append(number)
    units = F.normalize(torch.stack(vectors, dim=1), dim=-1)  # (n_layers + 1, words, D)
    senses = [sentence.sense for sentence in sentences]
    return [
        Layer(n, cosines := unit[own] @ unit[own].T, _baseline(unit, types, numbers), _separation(cosines, senses))
        for n, unit in enumerate(units)
    ]


def _baseline(units: Float[Tensor, "words D"], types: Sequence[str], sentences: Sequence[int]) -> float:
    """The mean cosine of two different words of different sentences; NaN where there are none.

    The sum over the pairs within a group is the squared length of the group's sum, so no pair is ever made:
    all pairs - pairs of one sentence - pairs of one word + those that are both.
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
    """Mean cosine within a sense minus between senses, over the pairs of which both senses are known."""
    pairs = [(i, j) for i in range(len(senses)) for j in range(i) if senses[i] is not None and senses[j] is not None]
    within = [cosines[i, j].item() for i, j in pairs if senses[i] == senses[j]]
    between = [cosines[i, j].item() for i, j in pairs if senses[i] != senses[j]]
    return sum(within) / len(within) - sum(between) / len(between) if within and between else None


def view(
    trained: Trained, word: str, sentences: Sequence[Sentence], asked: int | None, fault: type[MinitfError], step: str | None = None
) -> View:
    """The word in two or more sentences, by layer; `asked`: the layer whose pairs are drawn. `fault` as `locate` has it.

    step: the checkpoint as it was asked for, for the title.
    """
    as_source = trained.model.reads_source
    tokenizer = trained.source_tokenizer if as_source else trained.tokenizer
    found = [locate(partial(framed_whole, trained), trained.model.context, word, one, fault) for one in sentences]
    layers = study(trained.model, sentences, found, as_source)
    if asked is not None and not -len(layers) <= asked < len(layers):
        raise UsageFault(f"--layer {asked}: must be 0 (the embedding) to {len(layers) - 1}, or from the end -1 to {-len(layers)}")
    notes = _notes(tokenizer, word, layers, sentences, found)
    result = {
        "word": word,
        "texts": [_record(tokenizer, *pair) for pair in zip(sentences, found, strict=True)],
        "layers": [
            {"layer": one.number} | {name: getattr(one, name) for name in FIGURES} | {"pairs": one.cosines.tolist()} for one in layers
        ],
        "notes": notes,
    }
    said = [f"{n:>3}  {'' if one.sense is None else f'{one.sense}: '}{one.text}" for n, one in enumerate(sentences, 1)]
    columns = FIGURES if any(one.separation is not None for one in layers) else FIGURES[:-1]
    rows = [[f"{one.number}{' (embedding)' * (one.number == 0)}", *(getattr(one, name) for name in columns)] for one in layers]
    panel, gap = _panel(word, sentences, layers[-1 if asked is None else asked]), partial(terminal.sentence, "")
    shown = partial(terminal.heat_map, panel, _scale([panel]), values=True)
    pictures = [*(partial(terminal.line, text) for text in said), gap, partial(terminal.table, ["layer", *columns], rows), gap, shown]
    figure = _figure(word, sentences, layers, asked)
    return View(result, pictures, notes, replace(figure, title=f"{figure.title}, {origin(trained.folder, step)}"))


def _record(tokenizer: Tokenizer, sentence: Sentence, found: Occurrence) -> dict[str, Any]:
    pieces = tokenizer.pieces([found.given.ids[i] for i in found.tokens])
    record = {"text": sentence.text, "sense": sentence.sense, "characters": list(found.span), "occurrences": found.of}
    return record | {"tokens": found.tokens, "pieces": pieces, "n_tokens": len(found.given.ids), "n_cut": found.given.n_cut}


def _notes(
    tokenizer: Tokenizer, word: str, layers: Sequence[Layer], sentences: Sequence[Sentence], found: Sequence[Occurrence]
) -> list[str]:
    notes = [
        f"{sentence.where}: {word!r} occurs {one.of} times; the first, at characters {one.span[0]} to {one.span[1] - 1}, is compared"
        for sentence, one in zip(sentences, found, strict=True)
        if one.of > 1
    ]
    notes += [f"{sentence.where}: {one.given.note}" for sentence, one in zip(sentences, found, strict=True) if one.given.note]
    ways = {tuple(tokenizer.pieces([one.given.ids[i] for i in one.tokens])) for one in found}
    if len(ways) > 1:
        said = ", ".join(" ".join(map(repr, way)) for way in sorted(ways)[:4])
        notes.append(f"the word is not cut into the same pieces everywhere, so it differs before the first layer: {said}")
    if layers[0].baseline != layers[0].baseline:
        notes.append("no baseline: the sentences hold no two different words to compare")
    return notes


def _panel(word: str, sentences: Sequence[Sentence], layer: Layer) -> Panel:
    """The corrected cosines; the diagonal is left blank, where a sentence would meet itself."""
    values = layer.cosines.numpy() - np.nan_to_num(layer.baseline)
    names = [f"{number} {sentence.text if sentence.sense is None else sentence.sense}" for number, sentence in enumerate(sentences, 1)]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    return Panel(f"{word}: layer {layer.number}", names, numbers, np.where(np.eye(len(names), dtype=bool), np.nan, values), tokens=False)


def _scale(panels: Sequence[Panel]) -> Scale:
    values = np.stack([panel.values for panel in panels])
    return Scale(float(np.nanmin(values)), float(np.nanmax(values)), label="cosine - baseline")


def _figure(word: str, sentences: Sequence[Sentence], layers: Sequence[Layer], asked: int | None) -> Sheet:
    """The layer that was asked for, or a panel a layer; of many layers the first, the last and one or two evenly between."""
    n, last = min(len(layers), MOST_PANELS), len(layers) - 1
    chosen = [layers[asked]] if asked is not None else [layers[round(i * last / max(1, n - 1))] for i in range(n)]
    panels = [_panel(word, sentences, layer) for layer in chosen]
    title = f"{word} in {len(sentences)} sentences"
    if asked is None and len(chosen) < len(layers):
        title += f", layers {', '.join(str(layer.number) for layer in chosen)} of 0-{last}"
    return Sheet(panels, _scale(panels), title)
