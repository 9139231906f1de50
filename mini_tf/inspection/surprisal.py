"""Surprisal of each token and word of a text: -log p(token | its context), and the entropy of that prediction.

The surprisal of a word is the sum over its tokens, its entropy that of the prediction of its first token; both include
the white space before the word. An encoder predicts a token from all others (Salazar et al. 2020, arXiv:1910.14659), or
from all but the later ones of its word (Kauf and Ivanova 2023, arXiv:2305.10588). The numbers are those of minicons
(Misra 2022, arXiv:2203.13112) for the same special tokens around the text.
"""

import csv
import io
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.generation.likelihoods import TokenScores
from mini_tf.inspection import COMMON, INPUT_OUTPUT, ModelViewSettings, View, ViewOutput, option
from mini_tf.recipe.text_input import read_lines
from mini_tf.system.errors import DataFault
from mini_tf.trained.opening import Trained


class Settings(ModelViewSettings):
    """Measure the surprisal of each token or word of texts, as compared with reading times.

    Surprisal is -log p(token | tokens before it), of an encoder with the token masked; that of a word is the sum over
    its tokens. entropy: of the distribution over the token, or the first token of the word. FILE.csv has the table,
    FILE.json tokens and words.
    """

    PANEL = COMMON
    ALIASES = ("surprisals", "perplexity", "log-probabilities", "reading-times", "likelihood")
    EXAMPLES = (
        "minitf inspect surprisal last texts.txt -o surprisal.csv",
        "minitf inspect surprisal last texts.txt --words",
    )
    FILES = (".csv", ".json", ".html")
    METRICS = ("surprisal", "entropy")

    file: Path | None = option(None, metavar="[FILE]", shown="stdin")
    """A text per line; blank lines are skipped."""
    words: bool = option(False, "--words", panel=INPUT_OUTPUT)
    """A row per word, split at white space, instead of per token."""
    bits: bool = option(False, "--bits", panel=INPUT_OUTPUT)
    """In bits instead of nats."""
    score: str | None = option(None, "--score", metavar="word|token", panel=INPUT_OUTPUT, shown="word")
    """Of an encoder: mask each token with the later ones of its word, or alone."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        objective, name = trained.recipe.objective, "stdin" if self.file is None else str(self.file)
        kind, description = objective.text_score(self.score, trained.folder.name, "surprisal")
        lines = {number: text for number, text in enumerate(read_lines(self.file, ""), 1) if text.strip()}
        if not lines:
            raise DataFault(f"{name} has no text", hint="give a text per line", where=(name,))
        pipeline: Any = objective.pipeline()
        scorer = pipeline.build(trained).text_scorer(kind)
        scores = scorer.tokens([*lines.values()], [f"{name}:{number}" for number in lines])
        unit, scale = ("bits", 1 / math.log(2)) if self.bits else ("nats", 1.0)
        tokens = [
            token
            for (number, text), of_text in zip(lines.items(), scores, strict=True)
            for token in _tokens(trained, number, text, of_text, scale)
        ]
        words = _words(tokens)
        rows: Sequence[TokenSurprisal | WordSurprisal] = words if self.words else tokens
        columns = [f"{column}_{unit}" if column in self.METRICS else column for column in rows[0]._fields]
        cells = [[label(cell) if isinstance(cell, str) else _shown(cell) for cell in row] for row in rows]
        scored = [token for token in tokens if token.surprisal is not None]
        metrics = {
            metric: math.fsum(getattr(token, metric) for token in scored) / len(scored) if scored else None
            for metric in self.METRICS
        }
        means = ", ".join(f"{metric} {_shown(mean)} {unit}" for metric, mean in metrics.items())
        summary = f"Means of {len(scored):,} tokens: {means}. {description[0].upper()}{description[1:]}."
        notes = scorer.notes([*lines.values()])
        return View(
            {
                "score": kind,
                "description": description,
                "unit": unit,
                "tokens": [token._asdict() for token in tokens],
                "words": [word._asdict() for word in words],
                "notes": notes,
            },
            [partial(table, columns, cells), partial(sentence, summary)],
            notes,
            files={"csv": lambda: _csv(columns, rows)},
            metrics=metrics,
        )


class TokenSurprisal(NamedTuple):
    """A token of a text. text: number of the line; positions count from 1; surprisal, entropy: None if not scored."""

    text: int
    position: int
    token: str
    word_position: int
    word: str
    surprisal: float | None
    entropy: float | None


class WordSurprisal(NamedTuple):
    """A word of a text, or several if a token spans them; position: of the first, split at white space."""

    text: int
    position: int
    word: str
    n_tokens: int
    surprisal: float | None
    entropy: float | None


def _tokens(trained: Trained, number: int, text: str, scores: TokenScores, scale: float) -> list[TokenSurprisal]:
    """The tokens of a text, its numbers multiplied by `scale`."""
    ids, spans = trained.tokenizer.spans(text)
    of_words = word_positions(text, [first for first, _ in spans])
    words, following = re.findall(r"\S+", text), {}
    for position, next_position in pairwise([*dict.fromkeys(of_words), len(words) + 1]):
        following[position] = " ".join(words[position - 1 : next_position - 1])
    numbers = (
        [None if math.isnan(value) else scale * value for value in values]
        for values in ([-log_p for log_p in scores.log_p], scores.entropy)
    )
    named = [following[position] for position in of_words]
    columns = (range(1, len(ids) + 1), trained.tokenizer.pieces(ids), of_words, named, *numbers)
    return [TokenSurprisal(number, *row) for row in zip(*columns, strict=True)]


def word_positions(text: str, starts: Sequence[int]) -> list[int]:
    """The word of each token, from 1, by the character that it starts at.

    White space belongs to the word behind it, as in most tokens that have any; at the end of the text to the last word.
    """
    of_words = [match.start() for match in re.finditer(r"\S+", text)]
    characters = (re.compile(r"\S").search(text, start) for start in starts)
    return [len(of_words) if match is None else bisect_right(of_words, match.start()) for match in characters]


def _words(tokens: Sequence[TokenSurprisal]) -> list[WordSurprisal]:
    """The words of all texts; one whose first token is not scored has no surprisal."""
    members: dict[tuple[int, int], list[TokenSurprisal]] = {}
    for token in tokens:
        members.setdefault((token.text, token.word_position), []).append(token)
    words = []
    for (text, position), of_word in members.items():
        surprisals = [token.surprisal for token in of_word if token.surprisal is not None]
        is_scored = len(surprisals) == len(of_word)
        total = math.fsum(surprisals) if is_scored else None
        words.append(WordSurprisal(text, position, of_word[0].word, len(of_word), total, of_word[0].entropy))
    return words


def _shown(cell: float | None) -> str:
    return "" if cell is None else str(cell) if isinstance(cell, int) else f"{cell:.3f}"


def _csv(columns: Sequence[str], rows: Sequence[TokenSurprisal | WordSurprisal]) -> bytes:
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows([columns, *rows])
    return lines.getvalue().encode()
