"""The forms of labelled rows: how an example is read from a row of a table, and what of it becomes ids and labels.

An example's ids stand between two separators, and further ones stand between its parts. Beside every id, and the separator before
them, is a label: what is asked there, or NaN where nothing is.

    classes, numbers   sep  text (sep text)       at the opening separator: the class, or (number - mean) / scale
    tags               sep  words                 at the first token of each word: its tag
    turns              sep  turn sep turn ...     1 at what the assistant says, and at the separator that closes it
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

ASKED = "assistant"
"""Who says what a model shall learn to say."""


class Example(NamedTuple):
    """texts: one or two texts, words, or turns; answers: the class, the number, a tag for each word, or who says each turn.

    answers is empty where they are not known. where: the line it stands in. further: of a conversation, what the assistant could say
    last as well. n_later: turns behind the assistant's last one, which are left out since nothing is asked for there.
    """

    texts: list[str]
    answers: list[str]
    where: str
    further: tuple[str, ...] = ()
    n_later: int = 0


class Encoded(NamedTuple):
    """ids (n,) int32; labels (1 + n,) float32, the first of which belongs to the separator before the ids."""

    ids: np.ndarray
    labels: np.ndarray


class Form:
    """How one form of rows is read and encoded; a row is its cells by role, without those that the file has no column for."""

    REQUIRED: ClassVar[tuple[str, ...]]
    """Columns that there must be."""
    OPTIONAL: ClassVar[tuple[str, ...]]
    """Columns that there may be."""
    LOOKAHEAD: ClassVar[int]
    """Tokens that a row holds beyond the context, since they are asked for but not read."""
    CUTS: ClassVar[Literal["end", "beginning", "rows"]]
    """What becomes of an example that is longer than the context: the `end` of its texts, the longer one first, or its `beginning` is
    left out, or it makes several `rows`."""

    def read(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], answered: bool = True) -> Example:
        """The example of a row; DataFault with `where`. names: of the columns, by role. answered False: labels need not be there."""
        raise NotImplementedError

    def parts(self, example: Example) -> Sequence[str]:
        """The texts as they are encoded."""
        return example.texts

    def known_by(self, example: Example) -> str:
        """What is given when the answer is asked for: examples that agree in it belong on one side of a split."""
        return "\0".join(example.texts)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Labels) -> list[Encoded]:
        """Ids and labels of examples; DataFault where a label is not among the known ones, or the tokenizer leaves nothing of a text."""
        raise NotImplementedError


class Texts(Form):
    """A text, or two, and what is asked of it."""

    REQUIRED = ("text", "label")
    OPTIONAL = ("text_pair",)
    LOOKAHEAD = 0
    CUTS = "end"


class Classes(Texts):
    """What is asked is the name of a class."""

    def read(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], answered: bool = True) -> Example:
        texts = _texts(row, where, names)
        return Example(texts, [cells.label_of(row["label"], where, names["label"])] if answered else [], where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Labels) -> list[Encoded]:
        numbers = {name: n for n, name in enumerate(labels.names)}
        return _labelled(examples, tokenizer, [_numbered(one, numbers)[0] if one.answers else 0 for one in examples], labels.n_texts)


class Numbers(Texts):
    """What is asked is a number."""

    def read(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], answered: bool = True) -> Example:
        texts = _texts(row, where, names)
        return Example(texts, [repr(cells.number_of(row["label"], where, names["label"]))] if answered else [], where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Labels) -> list[Encoded]:
        numbers = [(float(one.answers[0]) - labels.mean) / labels.scale if one.answers else 0.0 for one in examples]
        return _labelled(examples, tokenizer, numbers, labels.n_texts)


class Tags(Form):
    """Words, and a tag for each."""

    REQUIRED = ("text", "label")
    OPTIONAL = ()
    LOOKAHEAD = 0
    CUTS = "rows"

    def read(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], answered: bool = True) -> Example:
        words = cells.words_of(row["text"], where, names["text"])
        tags = cells.labels_of(row["label"], where, names["label"]) if answered else []
        if answered and len(tags) != len(words):
            raise DataFault(f"{where}: {len(words)} words, but {len(tags)} tags; each word has one", where=(where,))
        return Example(words, tags, where)

    def parts(self, example: Example) -> Sequence[str]:
        return [" ".join(example.texts)]

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Labels) -> list[Encoded]:
        numbers = {name: n for n, name in enumerate(labels.names)}
        return [self._encode(one, tokenizer, _numbered(one, numbers)) for one in examples]

    def _encode(self, example: Example, tokenizer: Tokenizer, tags: Sequence[int]) -> Encoded:
        ids, spans = tokenizer.spans(*self.parts(example))
        _refuse_nothing(ids, example)
        lengths = np.array([len(word) for word in example.texts])
        ends = np.cumsum(lengths + 1) - 1
        opened, closed = np.array(spans).T
        # The first token that reaches into the word.
        first = np.minimum(np.searchsorted(closed, ends - lengths, side="right"), len(ids) - 1)
        reached = (opened[first] < ends) & (closed[first] > ends - lengths)
        if not reached.all() or len(np.unique(first)) < len(first):
            raise DataFault(
                f"{example.where}: the tokenizer makes one token of several words, or leaves nothing of one", where=(example.where,)
            )
        labels = np.full(1 + len(ids), np.nan, np.float32)
        labels[1 + first] = tags or 0
        return Encoded(ids, labels)


class Turns(Form):
    """A conversation: a prompt and its response, or messages."""

    REQUIRED = ()
    OPTIONAL = ("prompt", "response", "messages")
    LOOKAHEAD = 1
    CUTS = "beginning"

    def read(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], answered: bool = True) -> Example:
        further = list[str]()
        if "messages" in row and ("prompt" in row or "response" in row):
            two = f"{where}: has messages, and a prompt or a response besides; which of them is the conversation"
            raise DataFault(two, hint="data.fields={messages: COLUMN}, or {prompt: COLUMN, response: COLUMN}", where=(where,))
        if "messages" in row:
            turns = cells.turns_of(row["messages"], where, names["messages"])
        elif "prompt" in row and "response" in row:
            response, *further = cells.texts_of(row["response"], where, names["response"])
            turns = [("user", _text(row["prompt"], where, names["prompt"])), (ASKED, response)]
        else:
            hint = "name the columns: {prompt: COLUMN, response: COLUMN}"
            raise DataFault(f"{where}: needs prompt and response, or messages", hint=hint, where=(where,))
        last = max(number for number, (who, _) in enumerate(turns) if who == ASKED)
        said = turns[: last + 1]
        return Example([text for _, text in said], [who for who, _ in said], where, tuple(further), len(turns) - len(said))

    def known_by(self, example: Example) -> str:
        return "\0".join(example.texts[:-1] or example.texts)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Labels) -> list[Encoded]:
        encoded = iter(tokenizer.encode_batch([text for one in examples for text in one.texts]))
        found = []
        for one in examples:
            turns = [next(encoded) for _ in one.texts]
            for ids in turns:
                _refuse_nothing(ids, one)
            # A turn's label stands at its own tokens and at the separator behind them, the last of which is the closing one.
            said = [1.0 if who == ASKED else np.nan for who in one.answers]
            asked = [np.full(len(ids) + 1, label, np.float32) for ids, label in zip(turns, said, strict=True)]
            found.append(Encoded(_joined(turns, tokenizer), np.concatenate([[np.float32(np.nan)], *asked])[:-1]))
        return found


FORMS: dict[str, Form] = {"classes": Classes(), "numbers": Numbers(), "tags": Tags(), "turns": Turns()}


def _numbered(example: Example, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of the classes that an example names."""
    for name in example.answers:
        if name not in numbers:
            near, known = get_close_matches(name, numbers, n=1), list(numbers)
            listed = ", ".join(map(short, known[:20])) + (", ..." if len(known) > 20 else "")
            hint = f"did you mean {short(near[0])!r}?" if near else f"there are: {listed};"
            told = f"{example.where}: the label {short(name)!r} is none of those to learn from"
            raise DataFault(told, hint=f"{hint} objective.labels names all classes", where=(example.where,))
    return [numbers[name] for name in example.answers]


def _texts(row: Mapping[str, Cell], where: str, names: Mapping[str, str]) -> list[str]:
    return [_text(row[role], where, names[role]) for role in ("text", "text_pair") if role in row]


def _text(cell: Cell, where: str, name: str) -> str:
    text = cells.text_of(cell, where, name)
    if not text.strip():
        raise DataFault(f"{where}: {short(name)!r} is empty", hint="take the row out", where=(where,))
    return text


def _labelled(examples: Sequence[Example], tokenizer: Tokenizer, answers: Sequence[float], n_texts: int) -> list[Encoded]:
    """As many texts as the training side has, labelled at the separator before them."""
    for one in examples:
        if len(one.texts) != n_texts:
            told = "is missing; the run is trained on two texts" if n_texts == 2 else "is one too many; the run is trained on one text"
            raise DataFault(f"{one.where}: 'text_pair' {told}", hint="all rows have the same columns", where=(one.where,))
    encoded = iter(tokenizer.encode_batch([text for one in examples for text in one.texts]))
    found = []
    for one, answer in zip(examples, answers, strict=True):
        parts = [next(encoded) for _ in one.texts]
        for ids in parts:
            _refuse_nothing(ids, one)
        ids = _joined(parts, tokenizer)
        labels = np.full(1 + len(ids), np.nan, np.float32)
        labels[0] = answer
        found.append(Encoded(ids, labels))
    return found


def _joined(parts: Sequence[np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    separator = np.array([tokenizer.vocabulary.separator], np.int32)
    return np.concatenate([piece for part in parts for piece in (separator, part)][1:])


def _refuse_nothing(ids: np.ndarray, example: Example) -> None:
    if not ids.size:
        raise DataFault(f"{example.where}: the tokenizer leaves nothing of the text", where=(example.where,))
