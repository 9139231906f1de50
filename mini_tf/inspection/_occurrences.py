"""A word in sentences: reading them, finding the word, and its contextual embeddings by layer.

A word's vector is the mean over its tokens. From cosine similarities the baseline is subtracted: the mean over all
pairs of different words in different sentences. Source: Ethayarajh 2019, arXiv:1909.00512, sections 3.3 and 4.1.
"""

import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.inspection._capture import capture
from mini_tf.inspection._texts import ModelInput
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import SequenceKind
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import DataFault, MinitfError, UsageFault

_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts without spaces between words, by Unicode name; each character counts as a word."""


class Sentence(NamedTuple):
    """where: its name in messages, "text 2" or a file and line."""

    text: str
    where: str
    sense: str | None = None


def read(lines: Iterable[str], name: str, word: str) -> Iterator[Sentence]:
    """Read sentences from lines of the file `name`; skips empty lines, and records of other words in .jsonl files."""
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if not line.strip():
            continue
        if not name.lower().endswith(".jsonl"):
            yield Sentence(line, where)
        elif (record := _record(line, where)).get("word", word) == word:
            yield Sentence(record["text"], where, record.get("sense"))


def _record(line: str, where: str) -> dict[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataFault(f"not valid JSON: {error}", where=[where]) from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataFault('a record must have a "text"', where=[where])
    fields = {field: record[field] for field in ("text", "word", "sense") if record.get(field) is not None}
    for field, value in fields.items():
        if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
            raise DataFault(f'"{field}" must be a valid string', where=[where])
    return fields


def find_word(text: str, word: str) -> list[tuple[int, int]]:
    """Character spans [first, last) of the word as a whole word, case-sensitive."""
    places = []
    first = text.find(word)
    while first >= 0:
        last = first + len(word)
        if not _within_word(text, first) and not _within_word(text, last):
            places.append((first, last))
        first = text.find(word, first + 1)
    return places


def word_spans(text: str) -> list[tuple[int, int]]:
    """Spans [first, last) of the words of a text: runs of letters, combining marks, digits and _."""
    boundaries = [i for i in range(len(text) + 1) if not _within_word(text, i)]
    return [(first, last) for first, last in pairwise(boundaries) if _is_letter(text[first])]


def _within_word(text: str, at: int) -> bool:
    """Whether the characters before and after the offset `at` belong to one word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if unicodedata.category(after)[0] == "M":  # a combining mark belongs to its base letter
        return _is_letter(before)
    return _is_letter(before) and _is_letter(after) and not (_is_unspaced(before) or _is_unspaced(after))


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or character == "_"


def _is_unspaced(character: str) -> bool:
    return character > "\u0dff" and unicodedata.name(character, "").startswith(_UNSPACED_SCRIPTS)


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
        message = f"{sentence.where}: the word {word!r} does not occur in it"
        raise fault(message, hint="whole words are matched, with case")
    input = to_input(sentence.text)
    tokens = input.tokens_of(*spans[0])
    if not tokens:
        raise fault(f"{sentence.where}: the tokenizer drops {word!r}")
    kept = input.truncate(context)
    if kept.n_cut and tokens[-1] >= len(kept.ids) - kept.n_behind:
        closing = ", its closing token included" if kept.n_behind else ""
        message = f"{word!r} ends at token {tokens[-1] + 1}, but the model's context is {context}{closing}"
        raise fault(f"{sentence.where}: {message}", hint="shorten the text before it")
    return Occurrence(spans[0], tokens, kept, len(spans))


@torch.inference_mode()
def compare_occurrences(
    model: Model, sentences: Sequence[Sentence], occurrences: Sequence[Occurrence], as_source: bool = False
) -> list[LayerSimilarity]:
    """Similarity of the word's vectors in two or more sentences, by layer.

    Uses the first stack of the model's tokens, or with `as_source` of the source's. Raises UsageFault if there is none.
    """
    rows: SequenceKind = "source" if as_source else "input"
    if not any(model_stack.rows == rows for model_stack in model.stacks()):
        stacks = ", ".join(f"{model_stack.name}: {model_stack.rows}" for model_stack in model.stacks())
        whose = "source" if as_source else "text"
        raise UsageFault(f"no stack of the model has hidden states of the {whose}'s tokens ({stacks})")
    device = next(model.parameters()).device
    unused = Tokens(torch.zeros(1, 1, dtype=torch.long, device=device))  # input of a decoder
    vectors: list[Tensor] = []
    types: list[str] = []
    numbers: list[int] = []
    of_word: list[int] = []  # indices of the word's vectors, one per sentence
    for number, (sentence, occurrence) in enumerate(zip(sentences, occurrences, strict=True)):
        text = Tokens(torch.tensor([occurrence.input.ids], device=device))
        captured = capture(model, unused, text) if as_source else capture(model, text)
        hidden = next(stack.layers for stack in captured.hidden if stack.rows == rows)
        layers = torch.cat(hidden).cpu().double()  # (n_layers + 1, L, D)
        first, last = occurrence.span
        others = [span for span in word_spans(sentence.text) if span[1] <= first or span[0] >= last]
        for span in [(first, last), *others]:
            if tokens := occurrence.input.tokens_of(*span):
                of_word += [len(vectors)] if span == (first, last) else []
                vectors.append(layers[:, tokens].mean(dim=1))
                types.append(sentence.text[slice(*span)].casefold())
                numbers.append(number)
    units = F.normalize(torch.stack(vectors, dim=1), dim=-1)  # (n_layers + 1, words, D)
    senses = [sentence.sense for sentence in sentences]
    layers_of_word = [unit[of_word] @ unit[of_word].T for unit in units]
    return [
        LayerSimilarity(n, cosines, _baseline(unit, types, numbers), _separation(cosines, senses))
        for n, (unit, cosines) in enumerate(zip(units, layers_of_word, strict=True))
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
