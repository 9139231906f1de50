"""Word vectors of a CBOW run in `minitf inspect word`, and its baselines."""

import json
from pathlib import Path

import pytest
from commands import minitf, refused
from test_inspection_word_vectors import PAIRS, TEXT

from mini_tf.jobs.baselines import baseline_metrics
from mini_tf.recipe.kinds import settings_of


def test_the_command_shows_word_vectors_of_a_trained_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    Path("pairs.tsv").write_text("".join(f"{pair.words[0]}\t{pair.words[1]}\t{pair.score}\n" for pair in PAIRS))
    small = ("train.steps=2", "train.batch_size=2", "train.context=16", "tokenizer.vocab_size=330", "model.d_model=8")
    trained = minitf(
        "pretrain", "cbow-ladder-1", "data.train=text.txt", *small, "objective={kind: cbow, negatives: 2}", "-d", "run"
    )
    assert trained.exit_code == 0, trained.stderr
    assert minitf("evaluate", "run").exit_code == 0, "the checkpoint has the counts of negative sampling"
    shown = minitf("inspect", "word", "run", "king", "--neighbours", "3")
    assert shown.exit_code == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == 4
    assert minitf("inspect", "word", "run", "--analogy", "man woman king", "-o", "analogy.json").exit_code == 0
    assert len(json.loads(Path("analogy.json").read_text())["tokens"]) == 10
    similarity = minitf("inspect", "word", "run", "--similarity", "pairs.tsv", "--json")
    assert json.loads(similarity.stdout)["result"]["known"]["pairs"] == len(PAIRS)
    refused(
        minitf("inspect", "word", "run", "--analogy", "man woman"), "--analogy needs three words, got 2", exit_code=2
    )
    refused(
        minitf("inspect", "word", "run", "king", "--neighbors", "3", "-o", "x.png"),
        "its suffix must be .json",
        exit_code=2,
    )


def test_no_baseline_has_the_loss_of_negative_sampling() -> None:
    assert baseline_metrics(settings_of("objectives", "cbow")(negatives=5)) == {}  # type: ignore[arg-type]
