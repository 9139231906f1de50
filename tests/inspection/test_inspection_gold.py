"""Gold labels against attention and hidden states: heads made by hand have the accuracy that follows from their making,
and shuffled labels are at chance.
"""

import json
from collections import Counter
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

import figures
import numpy as np
import pytest
import torch
from commands import minitf, trained

from mini_tf.data.corpora import world
from mini_tf.inspection import senses, syntax
from mini_tf.inspection._capture import capture
from mini_tf.inspection._gold import LabelledDocument, with_random_weights, word_attention, word_vectors
from mini_tf.inspection.syntax import (
    ALL,
    ANTECEDENT,
    OFFSETS,
    Comparison,
    Targets,
    baseline_guesses,
    guesses,
    targets_of,
    within,
)
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import Trained, open_trained

N = 40


def labelled(n: int, *columns: str) -> list[LabelledDocument]:
    """The first documents of the corpus, with all labels or those of some columns."""
    documents = []
    for row in islice(world.Settings(seed=5).rows(), n):
        labels = {name: row[name].split() for name in columns or row}
        documents.append(LabelledDocument(row["text"].split(), labels, "row"))
    return documents


@cache
def documents() -> list[LabelledDocument]:
    return labelled(N)


def compared(heads_of: object) -> Comparison:
    """`heads_of` gives the attention (heads, W, W) of a document; that of the control is uniform."""
    found = Comparison()
    for number, document in enumerate(documents()):
        n = len(document.words)
        found.add(number, document, heads_of(document), np.full((1, n, n), 1 / n))  # type: ignore[operator]
    return found


def oracle(document: LabelledDocument) -> np.ndarray:
    """The first head attends to heads, the second from heads, the third to antecedents."""
    n = len(document.words)
    attention = np.zeros((3, n, n))
    for word, head in enumerate(document.indices("heads")):
        if head >= 0:
            attention[0, word, head] = attention[1, head, word] = 1.0
    for word, antecedent in enumerate(document.indices("antecedents")):
        attention[2, word, max(antecedent, 0)] = 1.0
    return attention


def at_offset(document: LabelledDocument, offset: int) -> np.ndarray:
    return np.eye(len(document.words), k=offset)[None]


def test_an_oracle_has_every_relation_and_its_guesses_from_the_head_are_as_good() -> None:
    found = compared(oracle)
    assert {"det", "nsubj", "obj", "amod", "relcl", ALL, ANTECEDENT} <= {*found.relations()}
    for name in found.relations():
        assert found.heads.best(name).accuracy == 1.0
    for document in documents():
        targets = targets_of(document)["det"]
        to_head, from_head = guesses(oracle(document), targets)[[0, 3]]
        assert (to_head == targets.gold).all()
        assert (from_head == targets.gold).all()


@pytest.mark.parametrize("offset", [-1, 2])
def test_a_head_at_a_fixed_offset_has_exactly_the_accuracy_of_that_offset(offset: int) -> None:
    for document in documents():
        for name, targets in targets_of(document).items():
            if name != ANTECEDENT:
                inside = (targets.words + offset >= 0) & (targets.words + offset < len(document.words))
                head = guesses(at_offset(document, offset), targets)[0]
                assert (head == baseline_guesses(targets)[OFFSETS.index(offset)])[inside].all()


def test_the_baseline_of_a_relation_is_its_best_offset_and_of_antecedents_the_nearest_noun() -> None:
    found = compared(lambda document: at_offset(document, 1))
    for name, offset in (("det", 1), ("amod", 1), ("attr", -1)):
        correct = n = 0
        for document in documents()[1::2]:
            heads, relations = document.indices("heads"), document.labels["relations"]
            words = [word for word, relation in enumerate(relations) if relation == name]
            correct, n = correct + sum(heads[word] == word + offset for word in words), n + len(words)
        assert found.baseline.best(name)[1:] == (correct / n, n)
    nearest = total = 0
    for document in documents()[1::2]:
        for word, antecedent in enumerate(document.indices("antecedents")):
            if antecedent >= 0:
                nearest += antecedent == max(k for k in range(word) if document.labels["tags"][k] == "noun")
                total += 1
    assert found.baseline.best(ANTECEDENT)[1:] == (nearest / total, total)


def test_shuffled_labels_are_at_chance_even_for_an_oracle() -> None:
    """The chance that an exchanged head is the same is sum (d / n)^2, for words with d of the n dependents."""
    found = compared(oracle)
    expected, n, candidates = 0.0, 0, []
    for document in documents()[1::2]:
        targets = targets_of(document)
        dependents = np.unique(targets[ALL].gold, return_counts=True)[1]
        expected, n = expected + (dependents**2).sum() / dependents.sum(), n + dependents.sum()
        candidates += [1 / row.sum() for row in targets[ANTECEDENT].candidates] if ANTECEDENT in targets else []
    assert abs(found.shuffled.best(ALL).accuracy - expected / n) < 3 * np.sqrt(expected) / n
    assert abs(found.shuffled.best(ANTECEDENT).accuracy - np.mean(candidates)) < 0.1


def test_words_beyond_the_context_are_neither_guessed_nor_the_head_of_others() -> None:
    candidates = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]])
    kept = within(Targets(np.array([0, 1, 3]), np.array([1, 3, 0]), candidates), 3)
    assert (kept.words.tolist(), kept.gold.tolist()) == ([0], [1])
    assert kept.candidates is not None
    assert kept.candidates.tolist() == [[True, False, True]]
    assert within(Targets(np.array([0, 1, 3]), np.array([1, 3, 0])), 4).words.tolist() == [0, 1, 3]


def test_a_word_that_may_attend_to_none_has_no_guess_and_never_guesses_itself() -> None:
    document = documents()[0]
    targets = targets_of(document)[ALL]
    n = len(document.words)
    causal = np.where(np.tri(n, dtype=bool), np.eye(n) + 0.01, -1.0)[None]
    to_head, from_head = guesses(causal, targets)
    assert (to_head != targets.words).all()
    assert (from_head != targets.words).all()
    assert to_head[targets.words == 0].tolist() == [-1]
    assert (to_head < targets.words).all()


def of(vectors: np.ndarray, labels: list[str]) -> senses.Tokens:
    return senses.Tokens(np.array(labels), vectors[None])


def test_auc_is_a_half_for_one_vector_one_for_separate_senses_and_the_share_of_ordered_pairs_between() -> None:
    labels = ["a", "a", "a", "b", "b"]
    assert senses.auc(of(np.ones((5, 4)) / 2, labels), 0) == (0.5, 4 * 6)
    separate = np.array([[1.0, 0]] * 3 + [[0.0, 1]] * 2)
    assert senses.auc(of(separate, labels), 0) == (1.0, 24)
    assert senses.nearest(of(separate, labels), 0) == 5
    assert senses.nearest(of(np.array([[1.0], [-1.0]]), ["a", "b"]), 0) == 0, "a token is not compared with itself"
    drawn = np.random.default_rng(0).normal(size=(5, 3))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    cosines = {(i, j): drawn[i] @ drawn[j] for i in range(5) for j in range(i)}
    within = [value for (i, j), value in cosines.items() if labels[i] == labels[j]]
    between = [value for (i, j), value in cosines.items() if labels[i] != labels[j]]
    ordered = sum(one > other for one in within for other in between)
    assert senses.auc(of(drawn, labels), 0)[0] == pytest.approx(ordered / 24)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gold")
    model = "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, positions: none}"
    small = "data.train={kind: world, n_documents: 60, n_sentences: 6}"
    return trained(
        folder / "run",
        "train.steps=2",
        "train.context=512",
        model,
        "objective=masked",
        small,
        "data.val={kind: world, n_documents: 60, seed: 1}",
    )


def result(*arguments: str | Path) -> dict[str, object]:
    done = minitf("inspect", *arguments, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_the_views_read_the_runs_own_corpus_another_one_and_a_file(run: Path, tmp_path: Path) -> None:
    found = result("syntax", run, "--limit", "6")
    assert {"relation": "nsubj", "by": "+1"}.items() <= next(
        one for one in found["relations"] if one["relation"] == "nsubj"
    ).items()
    assert found["documents"] == 6
    other = "{kind: world, n_documents: 50, seed: 1}"
    assert result("senses", run, "--data", other, "--limit", "10")["layers"][0]["AUC"] == 0.5  # without positions
    file = world.Settings(n_documents=4).corpus(tmp_path)
    assert result("syntax", run, "--data", file)["documents"] == 4


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """With positions and large weights, so that no two cosines or attention weights of a layer are almost equal."""
    model = "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, positions: learned}"
    small = ("train.steps=1", "train.context=512", "train.batch_size=1")
    found = open_trained(
        trained(tmp_path_factory.mktemp("gold") / "positions", *small, model, "objective=masked"), device="cpu"
    )
    torch.manual_seed(0)
    for parameter in found.model.parameters():
        parameter.data.normal_(0, 0.2)
    return found


def tokens_of_words(trained: Trained, document: LabelledDocument) -> tuple[list[int], list[list[int]]]:
    """Ids, and the tokens of each word; a space belongs to the word before it."""
    ids, spans = trained.tokenizer.spans(document.text)
    starts = np.cumsum([0, *(len(word) + 1 for word in document.words)])
    words = [[1 + i for i, (a, b) in enumerate(spans) if a < last and b > first] for first, last in pairwise(starts)]
    return [trained.tokenizer.vocabulary.separator, *map(int, ids)], words  # type: ignore[list-item]


Sensed = dict[str, list[tuple[str, np.ndarray]]]
"""Sense and vectors (layers, D) of the tokens of each form."""


def sensed(trained: Trained, documents: list[LabelledDocument]) -> Sensed:
    found: Sensed = {}
    for document in documents:
        ids, words = tokens_of_words(trained, document)
        hidden = (
            torch.stack(capture(trained.model, Tokens(torch.tensor([ids]))).hidden[0].layers)[:, 0].double().numpy()
        )
        for word, sense, tokens in zip(document.words, document.labels["senses"], words, strict=True):
            if sense != "-":
                found.setdefault(word, []).append((sense, hidden[:, tokens].mean(axis=1)))
    return {form: tokens for form, tokens in found.items() if 2 <= len({sense for sense, _ in tokens}) < len(tokens)}


def auc_and_nearest(forms: Sensed, layer: int) -> tuple[float, float]:
    """Over all pairs and all tokens of all forms, by loops."""
    ordered, compared, right = 0.0, 0, 0.0
    for tokens in forms.values():
        n, labels = len(tokens), [sense for sense, _ in tokens]
        units = [vector[layer] / np.linalg.norm(vector[layer]) for _, vector in tokens]
        cosines = [[round(float(one @ other), 6) for other in units] for one in units]
        within = [cosines[i][j] for i in range(n) for j in range(i) if labels[i] == labels[j]]
        between = [cosines[i][j] for i in range(n) for j in range(i) if labels[i] != labels[j]]
        ordered += sum((one > other) + (one == other) / 2 for one in within for other in between)
        compared += len(within) * len(between)
        for i in range(n):
            best = max(cosines[i][j] for j in range(n) if j != i)
            nearest = [labels[j] == labels[i] for j in range(n) if j != i and cosines[i][j] == best]
            right += sum(nearest) / len(nearest)
    return ordered / compared, right / sum(map(len, forms.values()))


def test_senses_are_compared_over_all_pairs_of_all_forms_by_loops(opened: Trained) -> None:
    """AUC and nearest of forms with different numbers of pairs, each pair and each token counted once."""
    documents = labelled(9, "senses")
    found = senses.Settings(run="").of_documents(opened, documents)
    shown, forms, control = found.result, sensed(opened, documents), sensed(with_random_weights(opened), documents)
    assert shown["forms"] == {form: dict(Counter(sense for sense, _ in tokens)) for form, tokens in forms.items()}
    sizes = [len(tokens) for tokens in forms.values()]
    assert len({*sizes}) > 1, "else a mean over forms is a mean over pairs"
    assert shown["tokens"] == sum(sizes)
    assert shown["majority"] == sum(
        max(Counter(sense for sense, _ in tokens).values()) for tokens in forms.values()
    ) / sum(sizes)
    orders = {
        form: np.random.default_rng(0).permutation([sense for sense, _ in tokens]) for form, tokens in forms.items()
    }
    shuffled = {
        form: [(sense, v) for sense, (_, v) in zip(orders[form], tokens, strict=True)] for form, tokens in forms.items()
    }
    [_, *rows] = figures.rows_of(found.pictures[0])
    for number, (layer, cells) in enumerate(zip(shown["layers"], rows, strict=True)):
        (own, near), (random, random_near), (exchanged, _) = (
            auc_and_nearest(one, number) for one in (forms, control, shuffled)
        )
        expected = {"AUC": own, "random": random, "shuffled": exchanged, "nearest": near, "random_nearest": random_near}
        assert {name: layer[name] for name in expected} == pytest.approx(expected, abs=1e-3)
        assert cells == [f"{number}{' (embedding)' * (number == 0)}", *(f"{layer[name]:.3f}" for name in expected)]
    assert shown["layers"][1]["nearest"] != shown["layers"][1]["random_nearest"]


def test_of_a_form_only_the_first_tokens_are_compared(opened: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senses, "MAX_TOKENS", 6)
    documents = labelled(15, "senses")
    first: dict[str, list[str]] = {}
    for document in documents:
        for word, sense in zip(document.words, document.labels["senses"], strict=True):
            if sense != "-":
                first.setdefault(word, []).append(sense)
    for form, tokens in senses.tokens_of(opened, documents).items():
        assert tokens.senses.tolist() == first[form][:6]
    assert max(map(len, first.values())) > 7


def test_words_beyond_the_context_have_no_token(opened: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five words three are within it."""
    vectors = torch.arange(6.0).view(1, 3, 2) + 1
    monkeypatch.setattr(senses, "word_vectors", lambda trained, text: vectors)
    labels = {"senses": ["-", "a", "b", "b", "a"]}
    tokens = senses.tokens_of(opened, [LabelledDocument(["the", "ab", "ab", "ab", "ab"], labels, "row")] * 2)
    assert tokens["ab"].senses.tolist() == ["a", "b", "a", "b"]
    expected = vectors[:, 1:] / vectors[:, 1:].norm(dim=-1, keepdim=True)
    assert np.allclose(tokens["ab"].vectors, torch.cat([expected, expected], dim=1))


def test_syntax_shows_the_best_head_of_one_half_scored_on_the_other_by_loops(opened: Trained) -> None:
    documents = labelled(6, "heads", "relations")
    found = syntax.Settings(run="").of_documents(opened, documents)

    def guessed(trained: Trained, document: LabelledDocument) -> list[list[int]]:
        """For each head and direction the guess of every word."""
        ids, words = tokens_of_words(trained, document)
        weights = capture(trained.model, Tokens(torch.tensor([ids]))).attention[0].weights[0].double().numpy()
        member, guesses = np.array([[token in one for token in range(len(ids))] for one in words], float), []
        for head in weights:
            between = (member / member.sum(axis=1, keepdims=True)) @ head @ member.T
            np.fill_diagonal(between, -1)
            guesses += [between.argmax(axis=1).tolist(), between.T.argmax(axis=1).tolist()]
        return guesses

    own, random = (
        [guessed(trained, document) for document in documents] for trained in (opened, with_random_weights(opened))
    )
    names = ["L0 H0 to", "L0 H0 from", "L0 H1 to", "L0 H1 from"]

    def best(guesses: list[list[list[int]]], relation: str, shuffled: bool = False) -> tuple[int, float]:
        correct = np.zeros((2, 4))
        counts = [0, 0]
        for number, document in enumerate(documents):
            targets = targets_of(document, shuffled).get(relation)
            if targets is not None:
                counts[number % 2] += len(targets.words)
                for guesser in range(4):
                    pairs = zip(targets.words, targets.gold, strict=True)
                    correct[number % 2, guesser] += sum(guesses[number][guesser][word] == gold for word, gold in pairs)
        chosen = int(correct[0].argmax())
        return chosen, correct[1, chosen] / counts[1]

    rows = {cells[0]: cells[1:] for cells in figures.rows_of(found.pictures[0])[1:]}
    for record in found.result["relations"]:
        relation = record["relation"]
        guesser, accuracy = best(own, relation)
        assert f"L{record['layer']} H{record['head']} {record['direction']}" == names[guesser]
        assert record["accuracy"] == pytest.approx(accuracy)
        assert record["random"] == pytest.approx(best(random, relation)[1])
        assert record["shuffled"] == pytest.approx(best(own, relation, shuffled=True)[1])
        numbers = [f"{record[name]:.3f}" for name in ("accuracy", "baseline")]
        controls = [f"{record[name]:.3f}" for name in ("random", "shuffled")]
        assert rows[relation] == [str(record["words"]), names[guesser], *numbers, record["by"], *controls]
    assert len({record["direction"] for record in found.result["relations"]}) == 2


def test_words_attend_as_the_mask_allows_and_a_truncated_word_is_left_out(opened: Trained, tmp_path: Path) -> None:
    causal = open_trained(trained(tmp_path / "decoder", "train.steps=1", "train.context=16"), device="cpu")
    heads, weights = word_attention(causal, "ab cd ef gh ij kl")  # of 18 tokens 16 fit, and "ij" may have lost some
    assert [index.head for index in heads] == [0, 1, 0, 1]
    assert tuple(weights.shape) == (4, 4, 4)
    upper = torch.ones(4, 4, dtype=torch.bool).triu(1)
    assert (weights[:, upper] == -1).all()
    assert (weights[:, ~upper] > 0).all()
    assert tuple(word_vectors(causal, "ab cd ef gh ij kl").shape) == (3, 4, causal.recipe.model.d_model)  # type: ignore[attr-defined]
    assert word_attention(causal, "ab cd ef gh ij")[1].shape[1] == 5, "nothing is lost"
    ids, words = tokens_of_words(causal, LabelledDocument(["ab", "cd", "ef", "gh", "ij"], {}, "row"))
    [attention, _] = capture(causal.model, Tokens(torch.tensor([ids]))).attention
    expected = attention.weights[0, 1, words[3]][:, words[1]].sum(dim=1).mean()
    assert float(word_attention(causal, "ab cd ef gh ij")[1][1, 3, 1]) == pytest.approx(float(expected), abs=1e-6)


def test_data_without_labels_are_refused_with_the_missing_column(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "plain.jsonl"
    file.write_text(
        '{"text": "a king", "heads": "1 -1", "relations": "det root"}\n{"text": "a", "heads": "3", "relations":'
        ' "root"}\n'
    )
    for arguments, told in (
        (
            ("senses", "--data", file),
            "no column 'senses'; the columns are: text, heads, relations; --data world, or a table with these columns",
        ),
        (("syntax", "--data", file), "'heads', word 1: '3' must be the index of a word, 0 to 0, or -1"),
        (("syntax", "--data", "grammar"), "grammar has no columns heads, relations"),
    ):
        done = minitf("inspect", arguments[0], run, *arguments[1:])
        assert done.exit_code == 4
        assert told in done.stderr
