"""Gold labels against attention and hidden states: heads made by hand have the accuracy that follows from their making,
and shuffled labels are at chance.
"""

import json
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import minitf, trained

from mini_tf.data.corpora import world
from mini_tf.inspection.capture import capture
from mini_tf.inspection.gold import senses
from mini_tf.inspection.gold.documents import LabelledDocument
from mini_tf.inspection.gold.syntax import ALL, ANTECEDENT, OFFSETS, Comparison, baseline_guesses, guesses, targets_of
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import open_trained

N = 40


@cache
def documents() -> list[LabelledDocument]:
    rows = islice(world.Settings(seed=5).rows(), N)
    return [LabelledDocument(row["text"].split(), {name: cell.split() for name, cell in row.items()}, "row") for row in rows]


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
    found = result("syntax", run, "--limit", "30")
    assert {"relation": "nsubj", "by": "+1"}.items() <= next(one for one in found["relations"] if one["relation"] == "nsubj").items()
    assert found["documents"] == 30
    other = "{kind: world, n_documents: 50, seed: 1}"
    assert result("senses", run, "--data", other, "--limit", "50")["layers"][0]["AUC"] == 0.5  # without positions
    file = world.Settings(n_documents=8).corpus(tmp_path)
    assert result("syntax", run, "--data", file)["documents"] == 8


def test_senses_are_compared_over_all_pairs_of_all_forms_by_loops(run: Path) -> None:
    """AUC and nearest of two forms with different numbers of pairs, each pair and each token counted once."""
    opened, rows = open_trained(run, device="cpu"), [*islice(world.Settings(seed=5).rows(), 30)]
    documents = [LabelledDocument(row["text"].split(), {"senses": row["senses"].split()}, "row") for row in rows]
    torch.manual_seed(0)
    for parameter in opened.model.parameters():  # so that no two cosines of a layer are almost equal
        parameter.data.normal_(0, 0.4)
    shown = senses.view(opened, documents).result
    separator, found = opened.tokenizer.vocabulary.separator, dict[str, list[tuple[str, np.ndarray]]]()
    for document in documents:
        places = [n for n, sense in enumerate(document.labels["senses"]) if sense != "-"]
        ids, spans = opened.tokenizer.spans(document.text)
        hidden = capture(opened.model, Tokens(torch.tensor([[separator, *map(int, ids)]]))).hidden[0].layers
        layers = torch.stack(hidden)[:, 0].double().numpy()
        for n in places:
            first = len(" ".join(document.words[:n])) + (n > 0)
            behind = first + len(document.words[n]) + 1  # a space belongs to the word before it
            own = [1 + i for i, (a, b) in enumerate(spans) if a < behind and b > first]
            found.setdefault(document.words[n], []).append((document.labels["senses"][n], layers[:, own].mean(axis=1)))
    forms = {form: tokens for form, tokens in found.items() if 2 <= len({sense for sense, _ in tokens}) < len(tokens)}
    assert shown["forms"] == {form: dict(Counter(sense for sense, _ in tokens)) for form, tokens in forms.items()}
    sizes = [len(tokens) for tokens in forms.values()]
    assert len({*sizes}) > 1, "else a mean over forms is a mean over pairs"
    assert shown["tokens"] == sum(sizes)
    assert shown["majority"] == sum(max(Counter(sense for sense, _ in tokens).values()) for tokens in forms.values()) / sum(sizes)
    for number, layer in enumerate(shown["layers"]):
        ordered, compared, right = 0.0, 0, 0.0
        for tokens in forms.values():
            n, labels = len(tokens), [sense for sense, _ in tokens]
            units = [vector[number] / np.linalg.norm(vector[number]) for _, vector in tokens]
            cosines = [[round(float(one @ other), 6) for other in units] for one in units]
            within = [cosines[i][j] for i in range(n) for j in range(i) if labels[i] == labels[j]]
            between = [cosines[i][j] for i in range(n) for j in range(i) if labels[i] != labels[j]]
            ordered += sum((one > other) + (one == other) / 2 for one in within for other in between)
            compared += len(within) * len(between)
            for i in range(n):
                best = max(cosines[i][j] for j in range(n) if j != i)
                nearest = [labels[j] == labels[i] for j in range(n) if j != i and cosines[i][j] == best]
                right += sum(nearest) / len(nearest)
        assert layer["AUC"] == pytest.approx(ordered / compared, abs=1e-4)
        assert layer["nearest"] == pytest.approx(right / sum(sizes), abs=1e-3)


def test_data_without_labels_are_refused_with_the_missing_column(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "plain.jsonl"
    file.write_text('{"text": "a king", "heads": "1 -1", "relations": "det root"}\n{"text": "a", "heads": "3", "relations": "root"}\n')
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
