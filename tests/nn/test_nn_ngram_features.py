"""The wide part of a task head is TF-IDF of token n-grams, as scikit-learn computes it, times its weights; and tables
of n-grams: each combination has its own row, and nothing looks over the beginning of a document or ahead.
"""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_tasks
import torch
import torch.nn.functional as F
from commands import minitf
from safetensors.torch import load_file
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.testing import assert_close
from toys import seeded

from mini_tf.data.batch import DOCUMENT_IDS, DOCUMENTS, Batch, document_batches
from mini_tf.nn.layers import ngram_features
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.layers.ngram_features import NGramFeatures, NGrams, WindowFeatures, fit_network_scale, hash_keys
from mini_tf.nn.layers.word_characters import CharacterFeatures
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.metrics import metrics_of
from mini_tf.testing.tiny.objectives import TinyObjective, tiny_objective
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import pack

ROWS = 10_007
TEXTS = [[3, 1, 4, 15, 9], [2, 6, 5], [3, 1, 6, 7, 8, 0], [9], [1, 4, 2]]
"""Token ids; no n-gram occurs twice in a text."""


def features(order: int = 3, rows: int = ROWS, log_counts: bool = False) -> NGramFeatures:
    found = NGramFeatures(16, order, rows, 2.0, 4, log_counts).double()
    found.weights.weight.data = seeded(rows, 4)
    return found


def padded(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, texts))
    ids = torch.tensor([text + [5] * (width - len(text)) for text in texts])
    return ids, torch.arange(width) < torch.tensor([len(text) for text in texts])[:, None]


def texts(some: list[list[int]], classes: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return *padded(some), torch.tensor(classes or [0] * len(some))


def test_it_is_tf_idf_of_scikit_learn_times_the_weights() -> None:
    wide = features()
    vectorizer = TfidfVectorizer(
        analyzer=lambda text: [
            tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, min(i + 3, len(text)) + 1)
        ]
    )
    expected = vectorizer.fit_transform(TEXTS).toarray()
    rows_of = {}  # of each n-gram, found from texts that are nothing else
    for ngram in vectorizer.vocabulary_:
        rows, complete = wide.rows(torch.tensor([ngram]), torch.ones(1, len(ngram), dtype=torch.bool))
        rows_of[ngram] = int(rows[complete][-1])
    assert len(set(rows_of.values())) == len(rows_of), "the hashes of so few n-grams must differ, for this test"
    wide.fit(lambda: [texts(TEXTS[:2]), texts(TEXTS[2:])], 1)
    table = wide.weights.weight.detach().numpy()
    weights = np.stack(
        [table[rows_of[ngram]] for ngram in sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)]
    )
    np.testing.assert_allclose(
        wide(*padded(TEXTS)).detach().numpy(), 2.0 * expected @ weights, atol=1e-6
    )  # idf is float32 there


PIECES = (" ", " a", " cat", "s", " it", "'s", " mat", " sat", "ing")
REPEATED = [[0, 1, 2, 3, 7, 1, 2, 0], [0, 4, 5, 4, 5, 4, 8, 0], [0, 2, 0], [0, 6, 8, 1, 3, 3, 3, 0]]


@pytest.mark.parametrize("lengths", [(1, 1), (2, 3), (3, 5)])
def test_characters_in_words_are_those_of_scikit_learn_too(lengths: tuple[int, int]) -> None:
    """With what occurs in the training texts alone, each of which counts 1 + log of how often it occurs."""
    wide = CharacterFeatures(PIECES, lengths, ROWS, 2.0, 4, log_counts=True).double()
    wide.weights.weight.data = seeded(ROWS, 4)
    spelled = ["".join(PIECES[id] for id in ids) for ids in REPEATED]
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=lengths, sublinear_tf=True, lowercase=False)
    if lengths == (1, 1):  # scikit-learn counts spaces, too
        vectorizer = TfidfVectorizer(analyzer=lambda text: list(text.replace(" ", "")), sublinear_tf=True)
    expected = vectorizer.fit(spelled[:3]).transform(spelled).toarray()
    wide.fit(lambda: [texts(REPEATED[:2]), texts(REPEATED[2:3])], 1)
    row_of = {}
    for ids, inside in (padded([text]) for text in REPEATED[:3]):
        characters, _ = wide.words.spell(ids, inside)
        for n, (keys, inside) in enumerate(wide.words(ids, torch.ones_like(ids, dtype=torch.bool)), start=lengths[0]):
            for _, first in inside.nonzero().tolist():
                ngram = "".join(chr(code or 32) for code in characters[0, first : first + n].tolist())
                row_of[ngram] = int(hash_keys(keys[0, first], ROWS))
    assert row_of.keys() == vectorizer.vocabulary_.keys()
    assert len(set(row_of.values())) == len(row_of), "the hashes of so few n-grams must differ, for this test"
    table = wide.weights.weight.detach().numpy()
    weights = np.stack(
        [table[row_of[ngram]] for ngram in sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)]
    )
    np.testing.assert_allclose(wide(*padded(REPEATED)).detach().numpy(), 2.0 * expected @ weights, atol=1e-6)


def test_log_counts_count_repetitions_less() -> None:
    """Against a loop."""
    wide = features(2, log_counts=True)
    wide.idf = seeded(ROWS).abs().double()
    text = [3, 1, 3, 1, 3]
    rows = [
        int(wide.rows(torch.tensor([one]), torch.ones(1, len(one), dtype=torch.bool))[0][0, -1])
        for one in ([3], [1], [3, 1], [1, 3])
    ]
    values = torch.stack([(1 + np.log(count)) * wide.idf[row] for row, count in zip(rows, (3, 2, 2, 2), strict=True)])
    expected = 2.0 * (values[:, None] * wide.weights.weight[rows]).sum(0) / values.norm()
    torch.testing.assert_close(wide(*padded([text]))[0], expected)


@pytest.mark.parametrize("log_counts", [False, True])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_padding_and_other_texts_change_nothing(order: int, log_counts: bool) -> None:
    wide = features(order, log_counts=log_counts)
    wide.characters = CharacterFeatures(
        [f" {chr(97 + id)}" for id in range(16)], (2, 3), ROWS, 1.0, 4, log_counts
    ).double()
    wide.characters.weights.weight.data = seeded(ROWS, 4)
    together = wide(*padded(TEXTS))
    for text, row in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(wide(*padded([text]))[0], row)


def test_order_and_tokens_matter_and_a_new_one_adds_nothing() -> None:
    wide = features(2)
    assert not torch.allclose(wide(*padded([[1, 2, 3]])), wide(*padded([[3, 2, 1]])))
    one = features(1)
    torch.testing.assert_close(one(*padded([[1, 2, 3]])), one(*padded([[3, 2, 1]])))
    assert NGramFeatures(16, 2, 64, 50.0, 4)(*padded(TEXTS)).abs().max() == 0


@pytest.mark.parametrize("many", [False, True])
def test_log_count_ratios_are_those_of_naive_bayes(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against loops over texts, classes and n-grams; with `many` classes, of the first two of three."""
    if many:
        monkeypatch.setattr(ngram_features, "MAX_CLASSES", 2)
    classes, given = [0, 1, 0, 2, 1], [{(one,) for one in text} | set(itertools.pairwise(text)) for text in TEXTS]
    wide = NGramFeatures(16, 2, ROWS, 2.0, 4, class_ratios=True).double()
    wide.weights.weight.data = seeded(ROWS, 4)
    wide.characters = CharacterFeatures(
        [f" {chr(97 + id)}" for id in range(16)], (2, 3), ROWS, 1.0, 4, class_ratios=True
    ).double()
    wide.fit(lambda: [texts(TEXTS[:3], classes[:3]), texts(TEXTS[3:], classes[3:])], 3)
    expected, plain = torch.zeros(ROWS, dtype=torch.float64), NGramFeatures(16, 2, ROWS, 2.0, 4).double()
    for ngram in set().union(*given):
        ratios = []
        for one in range(2 if many else 3):
            own, others = (
                [ngram in found for found, c in zip(given, classes, strict=True) if (c == one) == same]
                for same in (True, False)
            )
            ratios.append(np.log((sum(own) + 1) / (len(own) + 2) * (len(others) + 2) / (sum(others) + 1)))
        expected[wide.rows(torch.tensor([ngram]), torch.ones(1, len(ngram), dtype=torch.bool))[0][0, -1]] = max(
            map(abs, ratios)
        )
    ngrams = wide.idf > 0
    torch.testing.assert_close(wide.ratio[ngrams], expected[ngrams], rtol=1e-5, atol=1e-6)  # type: ignore[index]
    assert wide.characters.ratio[wide.characters.idf > 0].min() > 0  # type: ignore[index]
    plain.idf, plain.weights.weight.data = (
        wide.idf,
        wide.weights.weight.data * expected[:, None],
    )  # after the scaling to unit length
    wide.characters = None
    torch.testing.assert_close(wide(*padded(TEXTS)), plain(*padded(TEXTS)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own_loss", [False, True])
def test_token_dropout_hides_tokens_from_ngrams_that_learn_with_the_network(own_loss: bool) -> None:
    wide = {"order": 2, "rows": 64, "scale": 1.0, "own_loss": own_loss}
    case = tiny_objective(settings_of("objectives", "classify")(wide=wide, token_dropout_rate=0.5))  # type: ignore[call-arg]
    head: Any = case.model.head
    head.wide.weights.weight.data = seeded(64, case.objective.n_outputs)  # type: ignore[attr-defined]
    head.linear.weight.data.zero_()
    batch, sums = case.sums()
    hidden = batch.extras["ids"]
    assert not torch.equal(hidden, batch.inputs.ids)
    outputs = head.wide(batch.inputs.ids if own_loss else hidden, is_token(batch.inputs)) + head.linear.bias
    torch.testing.assert_close(
        sums.parts["classify"], F.cross_entropy(outputs.float(), batch.labels, reduction="sum"), check_dtype=False
    )


@pytest.mark.parametrize("training", [False, True])
def test_fitting_the_scale_of_the_network_leaves_the_mode_as_it_is(training: bool) -> None:
    """Else the rest of the training would have no dropout."""
    case = tiny_objective(settings_of("objectives", "classify")(wide={"order": 1, "rows": 64, "network_scale": "fit"}))  # type: ignore[call-arg]
    task = case.task.train(training)
    [scale] = case.objective.fit_on_validation(task, [case.objective.prepare(case.rows)])
    assert {module.training for module in task.modules()} == {training}
    assert scale is case.model.head.network_scale  # type: ignore[union-attr]


def test_with_a_loss_of_its_own_it_learns_as_if_alone_and_the_network_learns_the_rest() -> None:
    """Its gradient is that of its own outputs, without token dropout; the loss and the rest are as before."""

    def tried(**changed: Any) -> tuple[TinyObjective, Batch, LossSums]:
        wide = {"order": 2, "rows": 64, "scale": 1.0, **changed.pop("wide", {})}
        case = tiny_objective(settings_of("objectives", "classify")(wide=wide, **changed))
        case.model.head.wide.weights.weight.data = seeded(64, case.objective.n_outputs)  # type: ignore[union-attr, operator]
        batch, sums = case.sums()
        sums.parts["classify"].backward()
        return case, batch, sums

    (joint, batch, whole), (own, _, parts) = tried(), tried(wide={"own_loss": True, "network_scale": 0.25})
    dropped, *_ = tried(wide={"own_loss": True}, token_dropout_rate=0.9)
    torch.testing.assert_close(parts.parts, whole.parts)
    wide = joint.model.head.wide  # type: ignore[union-attr]
    alone = wide(batch.inputs.ids, is_token(batch.inputs))
    (expected,) = torch.autograd.grad(F.cross_entropy(alone, batch.labels, reduction="sum"), wide.weights.weight)
    gradients = [
        {name: p.grad for name, p in case.task.named_parameters() if p.grad is not None}
        for case in (joint, own, dropped)
    ]
    of_wide = [found.pop("model.head.wide.weights.weight") for found in gradients]
    torch.testing.assert_close(of_wide[1:], [expected, expected])
    assert not torch.allclose(of_wide[0], expected)
    torch.testing.assert_close(gradients[1], gradients[0])
    before, after = (case.sums(training=False)[1].outputs for case in (joint, own))
    torch.testing.assert_close(after, alone + 0.25 * (before - alone))


def test_the_scale_of_the_network_has_the_smallest_validation_loss_with_a_free_temperature() -> None:
    """Against a grid; a network that tells the opposite has none, and without targets nothing is known of it."""
    labels = torch.arange(400) % 3
    network, wide = 3 * seeded(400, 3) + F.one_hot(labels, 3), seeded(400, 3).flip(0) + 1.5 * F.one_hot(labels, 3)

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, labels[: len(outputs)], reduction="sum")

    grid = ((t, n) for t in np.arange(0.3, 3, 0.02) for n in np.arange(0, 1, 0.01))
    best = min((float(loss(t * (wide + n * network))), n) for t, n in grid)[1]
    assert 0 < best < 1
    assert fit_network_scale(network, wide, loss) == pytest.approx(best, abs=0.02)
    assert fit_network_scale(-network, wide, loss) == 0
    assert fit_network_scale(network[:0], wide[:0], loss) == pytest.approx(1)
    numbers, target = wide[:, :1], wide[:, :1] + 0.7 * network[:, :1]
    found = fit_network_scale(network[:, :1], numbers, lambda outputs: F.mse_loss(outputs, target, reduction="sum"))
    assert found == pytest.approx(0.7, abs=0.01)


def test_the_scale_of_a_network_is_bounded_also_beside_wrong_ngrams() -> None:
    """0 if the network tells the opposite, 10 if only the network is right, 1 if neither is."""
    labels = torch.arange(60) % 3
    right, noise = 4 * F.one_hot(labels, 3).double(), seeded(60, 3).double()

    def scale(network: torch.Tensor, wide: torch.Tensor) -> float:
        return fit_network_scale(network, wide, lambda outputs: F.cross_entropy(outputs, labels, reduction="sum"))

    assert scale(-right, right + noise) == 0.0
    assert scale(0.2 * right, noise) == 10.0
    assert scale(right + noise, noise - right) == 10.0
    assert scale(noise - right, noise.flip(0) - right) == 1.0


def test_a_run_keeps_the_fitted_scale_and_every_command_uses_it(tmp_path: Path) -> None:
    wide = "objective.wide={order: 1, rows: 512, own_loss: true, network_scale: fit}"
    run = tiny_tasks.classifier(tmp_path, wide, "train.steps=20", "eval.every_steps=null")
    weights = load_file(run / "model.safetensors")
    trained = open_trained(str(run), None, "cpu")
    store, task = evaluation_data(trained, None, "val"), trained.task()
    (rows,) = pack(trained.recipe, store, trained.tokenizer, trained.objective).eval_rows(1000)
    batch = trained.objective.prepare(rows)
    network, of_ngrams = task.network_and_wide(batch)  # type: ignore[operator]
    expected = fit_network_scale(
        network, of_ngrams, lambda outputs: F.cross_entropy(outputs, batch.labels, reduction="sum")
    )
    assert float(weights["head.network_scale"]) == pytest.approx(expected, rel=1e-4)
    assert expected != pytest.approx(1, abs=1e-3)
    torch.testing.assert_close(task(batch, None).outputs, of_ngrams + weights["head.network_scale"] * network)
    measured = json.loads((run / "run.json").read_text())["metrics"]
    assert measured["val.network_scale"] == pytest.approx(expected, rel=1e-4)
    assert measured["val.loss"] == pytest.approx(
        task(batch, None).parts["classify"].item() / len(batch.labels), rel=1e-4
    )


def test_a_run_keeps_document_frequencies_of_its_training_texts_and_predicts_with_the_weights(
    classifier: Path, tmp_path: Path
) -> None:
    """classifier: its tokenizer, of the same texts in upper and lower case, is in the cache."""
    run = tiny_tasks.classifier(
        tmp_path, "objective.wide={order: 2, rows: 512, characters: [3, 4]}", "tokenizer.lowercase=true"
    )
    weights = load_file(run / "model.safetensors")
    trained = open_trained(str(run), None, "cpu")
    store = evaluation_data(trained, None, "train")
    wide = NGramFeatures(trained.tokenizer.vocabulary.size, 2, 512, 1.0, 3)
    frequencies = torch.zeros(512)
    for first, last in map(store.span, range(store.n_documents)):
        ids = store.ids[first : last + 1].tolist()
        ngrams = {(one,) for one in ids} | set(itertools.pairwise(ids))
        rows = {
            int(wide.rows(torch.tensor([one]), torch.ones(1, len(one), dtype=torch.bool))[0][0, -1]) for one in ngrams
        }
        frequencies[list(rows)] += 1
    expected = torch.where(frequencies > 0, ((1 + store.n_documents) / (1 + frequencies)).log() + 1, 0)
    torch.testing.assert_close(weights["head.wide.idf"], expected)
    assert weights["head.wide.weights.weight"].abs().sum(1)[frequencies > 0].min() > 0
    characters = CharacterFeatures(trained.tokenizer.vocabulary.texts, (3, 4), 512, 1.0, 3)
    batches = (texts([store.document(n).tolist()]) for n in range(store.n_documents))
    found = characters.document_counts(batches, 1).with_row[0]
    assert torch.equal(weights["head.wide.characters.idf"] > 0, found > 0)
    assert weights["head.wide.characters.weights.weight"].abs().sum(1)[found > 0].min() > 0
    assert trained.tokenizer.encode("A DULL film").tolist() == trained.tokenizer.encode("a dull FILM").tolist()
    evaluated, predicted = (
        minitf(command, run, *words) for command, words in (("evaluate", ["--json"]), ("predict", ["a dull film"]))
    )
    assert evaluated.exit_code == predicted.exit_code == 0, evaluated.stderr + predicted.stderr
    batch = trained.objective.prepare(
        next(pack(trained.recipe, store, trained.tokenizer, trained.objective).eval_rows(4))
    )
    whole = trained.task()(batch, None).outputs
    trained.model.head.wide.weights.weight.data.zero_()  # type: ignore[union-attr, operator]
    assert not torch.allclose(whole, trained.task()(batch, None).outputs)


@pytest.mark.parametrize(("order", "window"), [(1, 0), (2, 2), (3, 1)])
def test_of_a_token_those_around_it_count_each_at_its_distance(order: int, window: int) -> None:
    """Against a loop: the row of an n-gram at a distance is that of a text made of it alone, seen from there."""
    wide = WindowFeatures(16, order, ROWS, 2.0, 4, window).double()
    wide.weights.weight.data = seeded(ROWS, 4)
    ids, is_token = padded(TEXTS)
    found = wide(ids, is_token, None).view(*ids.shape, 4)

    def weight(ngram: list[int], distance: int) -> torch.Tensor:
        """Of an n-gram that begins at this distance: what it adds to a token that sees nothing else new."""
        only = torch.zeros(1, 2 * window + 1, dtype=torch.bool)
        row = torch.full((1, 2 * window + 1), 7)
        first = window + distance
        row[0, first : first + len(ngram)] = torch.tensor(ngram)
        only[0, first : first + len(ngram)] = True
        keys = [*wide._ngrams(row, only)][len(ngram) - 1][0][0, first]
        hashed = hash_keys(keys * (2 * window + 1) + first, ROWS)
        return wide.weights.weight[hashed]

    for row, text in enumerate(TEXTS):
        for position in range(len(text)):
            seen = [
                weight(text[first : first + n], first - position)
                for n in range(1, order + 1)
                for first in range(max(0, position - window), min(len(text), position + window + 1) - n + 1)
            ]
            torch.testing.assert_close(found[row, position], 2.0 * torch.stack(seen).sum(0) / len(seen) ** 0.5)
    at = torch.tensor([1, 9, 2])
    torch.testing.assert_close(wide(ids, is_token, at), found.flatten(0, 1)[at])


@pytest.mark.parametrize("window", [0, 1, 2])
def test_ngrams_longer_than_the_window_add_nothing(window: int) -> None:
    at = torch.arange(12)
    long, longest = (WindowFeatures(16, order, ROWS, 2.0, 4, window) for order in (8, 2 * window + 1))
    longest.weights.weight.data = long.weights.weight.data = seeded(ROWS, 4)
    ids, is_token = padded([[3, 1, 4, 15, 9, 7], [2, 6, 5]])
    torch.testing.assert_close(long(ids, is_token, at), longest(ids, is_token, at))


def test_long_documents_are_counted_few_at_once_with_their_classes() -> None:
    """Or the padding of short ones beside a long one would need its memory many times."""
    lengths = np.array([3, 1, *[2] * DOCUMENTS, DOCUMENT_IDS + 5, 4, DOCUMENT_IDS // 2, DOCUMENT_IDS // 2, 7])
    ends, n = lengths.cumsum(), len(lengths)
    ids, labels = np.arange(ends[-1]), np.arange(n) % 3
    spans = {"n_documents": n, "separated": 0, "span": lambda n: (ends[n] - lengths[n], ends[n])}
    data = SimpleNamespace(ids=ids, row_labels=labels[:, None].astype(np.float32), **spans)
    batches = [*document_batches(data, torch.tensor([2, 0, 1]))]  # type: ignore[arg-type]
    assert all(len(found) <= DOCUMENTS and (len(found) == 1 or found.numel() <= DOCUMENT_IDS) for found, *_ in batches)
    documents = [
        row[inside].tolist() for found, tokens, _ in batches for row, inside in zip(found, tokens, strict=True)
    ]
    assert documents == [part.tolist() for part in np.split(ids, ends[:-1])]
    assert torch.cat([classes for *_, classes in batches]).tolist() == [(2, 0, 1)[label] for label in labels]


@pytest.mark.parametrize("kind", ["classify", "regress", "tag"])
def test_the_scale_of_the_network_is_a_metric_of_each_task_where_it_is_fitted(kind: str) -> None:
    settings = settings_of("objectives", kind)
    assert "network_scale" in metrics_of(settings(wide={"network_scale": "fit"}))
    for wide in (None, {}, {"network_scale": 0.5}):
        assert "network_scale" not in metrics_of(settings(wide=wide))


V = 7


def table_of(*rows: int) -> NGrams:
    torch.manual_seed(0)
    return NGrams(V, 4, rows).double()


def nothing(batch: int, reach: int) -> torch.Tensor:
    return torch.full((batch, reach), V)


def decoder() -> Model:
    torch.manual_seed(0)
    settings = settings_of("models", "decoder")(d_model=16, n_layers=2, n_heads=2, ngrams=(100, 30))  # type: ignore[attr-defined]
    model: Model = settings.build(V, 16).double().eval()
    return model


@pytest.mark.parametrize(("v", "rows"), [(7, 1000), (7, 8 * 8), (6, 7 * 7), (9, 10 * 10)])
def test_every_pair_has_its_own_row_where_all_fit(v: int, rows: int) -> None:
    pairs = torch.cartesian_prod(torch.arange(v), torch.arange(v))
    vectors = NGrams(v, 4, (rows,))(pairs, torch.full((len(pairs), 1), v), TokenPositions(2))[:, 1]
    assert len(vectors.unique(dim=0)) == v * v


def test_a_pair_that_begins_a_document_differs_from_all_others() -> None:
    table = table_of(1000)
    assert table.tables[0].num_embeddings == (V + 1) ** 2
    first = table(torch.arange(V)[:, None], nothing(V, 1), TokenPositions(1))[:, 0]
    pairs = torch.cartesian_prod(torch.arange(V), torch.arange(V))
    others = table(pairs, nothing(len(pairs), 1), TokenPositions(2))[:, 1]
    assert len(torch.cat([first, others]).unique(dim=0)) == V * V + V


def test_hashed_triples_spread_over_the_whole_table() -> None:
    table = table_of(100, 50)
    triples = torch.cartesian_prod(*[torch.arange(V)] * 3)
    chosen = []
    table.tables[1].register_forward_hook(lambda module, inputs, output: chosen.append(inputs[0]))
    table(triples, nothing(len(triples), 2), TokenPositions(3))
    counts = torch.bincount(chosen[0][:, 2], minlength=50)
    assert counts.min() >= 1
    assert counts.max() <= 3 * counts.float().mean()


def test_the_rows_of_hashed_triples_are_those_of_the_formula() -> None:
    """In whole numbers of any size: a file's tables mean nothing with other rows."""
    table, ids = table_of(100, 30), torch.cartesian_prod(*[torch.arange(V)] * 3)
    found = table(ids, nothing(len(ids), 2), TokenPositions(3))[:, 2]
    pairs, triples = (part.weight for part in table.tables)
    for (third, second, first), vector in zip(ids.tolist(), found, strict=True):
        pair = first * (V + 1) + second
        product = (pair * (V + 1) + third) * 0x9E3779B97F4A7C15 % 2**64
        row = product // 2**32 % 2**31 % 30  # bits 32 to 62
        assert_close(vector, pairs[pair] + triples[row])


def test_a_sum_of_tables_is_the_sum_of_each() -> None:
    ids = torch.randint(V, (3, 9), generator=torch.Generator().manual_seed(1))
    both = table_of(100, 30)
    single = NGrams(V, 4, (100,)).double()
    single.tables[0] = both.tables[0]
    both.tables[1].weight.data.zero_()
    assert_close(both(ids, nothing(3, 2), TokenPositions(9)), single(ids, nothing(3, 1), TokenPositions(9)))


def test_documents_that_share_a_row_are_embedded_as_they_are_alone() -> None:
    table, ids = table_of(100, 30), torch.randint(V, (1, 8), generator=torch.Generator().manual_seed(2))
    together = table(ids, nothing(1, 2), TokenPositions.packed(torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]])))
    alone = [table(part, nothing(1, 2), TokenPositions(part.shape[1])) for part in (ids[:, :3], ids[:, 3:])]
    assert_close(together, torch.cat(alone, dim=1))


def test_steps_equal_the_whole_and_nothing_looks_ahead() -> None:
    model, ids = decoder(), torch.randint(V, (2, 10), generator=torch.Generator().manual_seed(3))
    whole = model.logits(model(Tokens(ids)).y)
    state, steps = model.start(2), []
    for part in ids.split([4, 1, 3, 2], dim=1):
        mixed = model(Tokens(part), state=state)
        state = model.trim(mixed.state)
        steps.append(model.logits(mixed.y))
    assert_close(torch.cat(steps, dim=1), whole)
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % V
    assert torch.equal(model.logits(model(Tokens(changed)).y)[:, :6], whole[:, :6])
    assert not torch.equal(model.logits(model(Tokens(changed)).y)[:, 7], whole[:, 7])


def test_a_prompt_padded_on_the_left_is_read_as_it_is_alone() -> None:
    model, ids = decoder(), torch.tensor([[0, 0, 3, 1, 5]])
    padded = TokenPositions(5, 0, torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 0, 1, 2]]))
    alone = model.logits(model(Tokens(ids[:, 2:])).y)
    assert_close(model.logits(model(Tokens(ids, padded)).y)[:, 2:], alone)
