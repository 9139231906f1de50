"""`minitf embed`: vectors against the mean of the hidden states, and neighbors against scikit-learn's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import minitf, refused, tiny_model, trained
from sklearn.neighbors import NearestNeighbors

from mini_tf.cli.embed import nearest_of
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import open_trained

TEXTS = ["the king was old", "a", "no sailor ever saw the king", "an old king"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    (folder / "texts.txt").write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    few = ("train.steps=1", "log.samples=0", "model.init_std=0.3", "eval.tokens=64")
    return trained(folder / "run", tiny_model("encoder"), *few)


def result(*arguments: str | Path, stdin: str = "") -> dict[str, Any]:
    done = minitf("embed", *arguments, "--json", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


def test_a_vector_is_the_mean_of_the_hidden_states_of_its_text(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "vectors.npy"
    done = minitf("embed", run, "-i", run.parent / "texts.txt", "-o", file)
    assert (done.exit_code, done.stdout) == (0, "")
    vectors, opened = np.load(file, allow_pickle=False), open_trained(run, device="cpu")
    assert vectors.dtype == np.float32
    before, behind = text_affixes(opened)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = [*before, *opened.tokenizer.encode(text).tolist(), *behind]
        with torch.no_grad():
            expected = opened.model(Tokens(torch.tensor([ids]))).y[0].mean(0)
        np.testing.assert_allclose(vector, expected.numpy(), rtol=1e-4, atol=1e-5)
    units = np.array(result(run, *TEXTS, "--normalize")["vectors"])
    np.testing.assert_allclose(units, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), rtol=1e-4, atol=1e-5)
    refused(minitf("embed", run, "a", "-o", file), "exists", exit_code=2)


@pytest.mark.parametrize("same", [True, False])
def test_neighbors_are_those_of_scikit_learn(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_tf.cli.embed.ROWS", 7)
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(20, 5)).astype(np.float32)
    others = vectors if same else draw.normal(size=(9, 5)).astype(np.float32)
    distances, indices = (
        NearestNeighbors(n_neighbors=3, metric="cosine").fit(others).kneighbors(None if same else vectors)
    )
    found = nearest_of(vectors, others, 3, same)
    assert [[n for n, _ in of_text] for of_text in found] == indices.tolist()
    assert [[cosine for _, cosine in of_text] for of_text in found] == pytest.approx(1 - distances, abs=1e-5)


def test_neighbors_are_other_texts_or_lines_of_a_file(run: Path, tmp_path: Path) -> None:
    found = result(run, *TEXTS, "--neighbors", "9")["neighbors"]
    assert [sorted(one["number"] for one in of_text) for of_text in found] == [
        [n for n in range(1, 5) if n != text] for text in range(1, 5)
    ]
    [nearest] = result(run, "--neighbors", "1", "--among", run.parent / "texts.txt", stdin=TEXTS[2])["neighbors"]
    assert nearest == [{"text": TEXTS[2], "number": 3, "cosine": pytest.approx(1.0, abs=1e-5)}]
    shown = minitf("embed", run, TEXTS[2], "--neighbors", "1", "--among", run.parent / "texts.txt").stdout
    assert "1.0000  no sailor ever saw the king" in shown


def test_what_has_no_vectors_or_no_place_for_them_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    refused(minitf("embed", run, "a"), "vectors need a file", exit_code=2)
    refused(minitf("embed", run, "a", "--neighbors", "1"), "a single text has no neighbors", exit_code=2)
    refused(minitf("embed", run, "a", "--among", "x.txt"), "used without --neighbors", exit_code=2)
    refused(minitf("embed", run, "a", "-o", tmp_path / "a.txt"), "its suffix must be .npy or .json", exit_code=2)
    refused(minitf("embed", run, "-i", tmp_path / "empty.txt", "--neighbors", "1"), "has no text", exit_code=4)
