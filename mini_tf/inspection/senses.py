"""Senses of homonyms in the hidden states of each layer: are tokens of one sense more similar than those of two?

The tokens of a form (`bank`) are compared in pairs. AUC: probability that a pair of one sense has a higher cosine
similarity than a pair of two senses, ties counted half, so a context-free embedding has 0.5. Nearest: share of the
tokens whose most similar token has the same sense; majority: share of the most frequent sense.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import LabelledViewSettings, View, ViewOutput
from mini_tf.inspection._gold import LabelledDocument, labelled_documents, with_random_weights, word_vectors
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

NEEDED = ("senses",)
NONE = "-"
"""The label of a word without a sense."""
MAX_TOKENS = 100
"""Of a form; the first ones are used."""
DECIMALS = 6
"""Of cosines, so that equal vectors are tied whatever the order of a sum."""
HEADERS = ("layer", "AUC", "random", "shuffled", "nearest", "random nearest")
LEGEND = (
    "AUC: probability that two tokens of one sense are more similar than two of different senses; 0.5 without context."
    " random: before training; shuffled: with shuffled senses. nearest: share of the tokens whose most similar token"
    " has the same sense"
)
_SEED = 0


class Tokens(NamedTuple):
    """The tokens of one form: senses (n,), and unit vectors (layers, n, D)."""

    senses: np.ndarray
    vectors: np.ndarray

    def shuffled(self) -> "Tokens":
        return self._replace(senses=np.random.default_rng(_SEED).permutation(self.senses))


def tokens_of(trained: Trained, documents: Sequence[LabelledDocument]) -> dict[str, Tokens]:
    """The tokens of every form with two senses that has two tokens of one of them."""
    tokens_by_form: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for document in documents:
        sensed = [n for n, sense in enumerate(document.labels["senses"]) if sense != NONE]
        places = [n for n in sensed if len(tokens_by_form[document.words[n]]) < MAX_TOKENS]
        vectors = word_vectors(trained, document.text).numpy() if places else np.empty((0, 0, 0))
        for n in places:
            if n < vectors.shape[1]:
                tokens_by_form[document.words[n]].append((document.labels["senses"][n], vectors[:, n]))
    forms = {}
    for form, tokens in sorted(tokens_by_form.items()):
        senses = np.array([sense for sense, _ in tokens])
        if 2 <= len({*senses}) < len(senses):
            stacked = np.stack([vector for _, vector in tokens], axis=1)
            forms[form] = Tokens(senses, stacked / np.maximum(np.linalg.norm(stacked, axis=-1, keepdims=True), 1e-12))
    return forms


def auc(tokens: Tokens, layer: int) -> tuple[float, int]:
    """The area under the curve, and the number of its comparisons."""
    first, second = np.triu_indices(len(tokens.senses), 1)
    cosines = _cosines(tokens, layer)[first, second]
    same = tokens.senses[first] == tokens.senses[second]
    within, between = cosines[same], np.sort(cosines[~same])
    below = np.searchsorted(between, within, "left") + np.searchsorted(between, within, "right")
    n = len(within) * len(between)
    return float(below.sum() / 2 / n) if n else 0.5, n


def nearest(tokens: Tokens, layer: int) -> float:
    """The number of tokens whose most similar token has the same sense; ties are shared."""
    cosines = _cosines(tokens, layer)
    np.fill_diagonal(cosines, -2)
    most = cosines == cosines.max(axis=1, keepdims=True)
    same = tokens.senses[:, None] == tokens.senses
    return float(((most & same).sum(axis=1) / most.sum(axis=1)).sum())


def _cosines(tokens: Tokens, layer: int) -> np.ndarray:
    vectors = tokens.vectors[layer]
    return np.asarray(np.round(vectors @ vectors.T, DECIMALS))


def _mean_auc(forms: Mapping[str, Tokens], layer: int) -> float:
    """Of all forms, each weighted by its comparisons."""
    aucs = [auc(tokens, layer) for tokens in forms.values()]
    return float(np.average([value for value, _ in aucs], weights=[n for _, n in aucs]))


def _mean_nearest(forms: Mapping[str, Tokens], layer: int) -> float:
    n_tokens = sum(len(tokens.senses) for tokens in forms.values())
    return sum(nearest(tokens, layer) for tokens in forms.values()) / n_tokens


class Settings(LabelledViewSettings):
    """Measure how well each layer separates the gold senses of homonyms.

    The documents have the columns text and senses (one for each word, - for none). Prints for each layer the
    probability that two tokens of one sense are more similar than two of different senses, and two controls: random
    weights and shuffled senses. Encoder-decoder: the encoder is used.
    """

    ALIASES = ("homonyms", "probe")
    EXAMPLES = ("minitf inspect senses last --data world",)

    def view(self, trained: Trained, output: ViewOutput) -> View:
        return self.of_documents(trained, labelled_documents(trained, self.data, NEEDED, (), self.limit))

    def of_documents(self, trained: Trained, documents: Sequence[LabelledDocument]) -> View:
        """Raises UsageFault if no form has two senses."""
        forms, control = tokens_of(trained, documents), tokens_of(with_random_weights(trained), documents)
        if not any(auc(tokens, 0)[1] for tokens in forms.values()):
            message = "no word form has tokens of two senses, one of them twice"
            raise UsageFault(message, hint="give more documents: --limit N")
        shuffled = {form: tokens.shuffled() for form, tokens in forms.items()}
        n_layers = len(next(iter(forms.values())).vectors)
        n_tokens = sum(len(tokens.senses) for tokens in forms.values())
        largest = sum(max(np.unique(tokens.senses, return_counts=True)[1]) for tokens in forms.values())
        majority = float(largest / n_tokens)
        layers: list[dict[str, Any]] = []
        for n in range(n_layers):
            aucs = (_mean_auc(by_form, n) for by_form in (forms, control, shuffled))
            values = (n, *aucs, _mean_nearest(forms, n), _mean_nearest(control, n))
            layers.append(dict(zip(HEADERS, values, strict=True)))
        result = {
            "documents": len(documents),
            "tokens": n_tokens,
            "forms": {
                form: {str(sense): int((tokens.senses == sense).sum()) for sense in np.unique(tokens.senses)}
                for form, tokens in forms.items()
            },
            "majority": majority,
            "layers": [{name.replace(" ", "_"): value for name, value in layer.items()} for layer in layers],
        }
        rows = [[f"{n}{' (embedding)' * (n == 0)}", *[*layer.values()][1:]] for n, layer in enumerate(layers)]
        of_forms = f"{n_tokens:,} tokens of {len(forms)} forms with two or more senses"
        sentences = (f"{LEGEND}.", f"{of_forms}; the most frequent sense: {majority:.3f}.")
        return View(result, [partial(table, HEADERS, rows), *(partial(sentence, text) for text in sentences)])
