"""The shipped recipes are held to their word (slow: minutes each; `pytest -m slow`)."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from baseline import BothNeighbours
from commands import minitf, refused

from mini_tf.recipe import reading
from mini_tf.recipe.arguments import presets, summary
from mini_tf.recipe.corpora import CorpusSettings, built_in_corpora
from mini_tf.recipe.data import Data, FilePair
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import pack

DATA = Path(__file__).parents[3] / "shared" / "data"
SHAKESPEARE = DATA / "tinyshakespeare" / "input.txt"
needs_shakespeare = pytest.mark.skipif(not SHAKESPEARE.exists(), reason="needs ../shared/data/tinyshakespeare")


def files_of(data: Data) -> Iterator[str]:
    """Everything that data.train and data.val name."""
    for corpus in (data.train, data.val):
        for part in (corpus.source, corpus.target) if isinstance(corpus, FilePair) else (corpus,):
            yield from (part,) if isinstance(part, str) else () if isinstance(part, CorpusSettings) else part or ()


LARGE = "transformer-base"
FOR_A_GPU = (LARGE, "babylm-10m")
"""Of a size for a machine and data that nobody here can know of: they promise nothing."""
PROMISING = [name for name in presets() if name not in FOR_A_GPU]


def test_the_paper_s_base_shape_is_of_the_paper_s_size() -> None:
    """65 million with the 37,000 tokens of the paper (Vaswani et al. 2017, table 3)."""
    recipe = reading.read(LARGE).recipe
    assert recipe.expect == {}
    assert len(presets()[LARGE].read_text().splitlines()) <= 30
    assert "GPU" in summary(presets()[LARGE])
    for vocabulary, least, most in ((recipe.tokenizer.vocab_size, 60e6, 63e6), (37_000, 62.5e6, 65.5e6)):
        with torch.device("meta"):
            model = recipe.model.build(vocabulary, recipe.train.context)
        parameters = list(model.parameters())
        assert all(one.is_meta for one in parameters)
        assert least < sum(one.numel() for one in parameters) < most


def test_the_recipe_for_babylm_keeps_its_rules() -> None:
    """Ten epochs of 10 million words, with the milestones of strict-small, in an hour at 10 TFLOP/s."""
    recipe = reading.read("babylm-10m").recipe
    million = 10**6
    assert (recipe.train.words, recipe.train.epochs, recipe.expect) == (10 * million, 10, {})
    assert recipe.checkpoint.at_words == tuple(n * million for n in (*range(1, 11), *range(20, 101, 10)))
    with torch.device("meta"):
        model = recipe.model.build(recipe.tokenizer.vocab_size, recipe.train.context)
    tokens = 100 * million * 1.6  # of a byte-pair tokenizer of this size, at most
    assert 6 * sum(one.numel() for one in model.parameters()) * tokens < 3600 * 10e12


@pytest.mark.parametrize("name", PROMISING)
def test_a_shipped_recipe_says_what_it_makes_and_promises_something(name: str) -> None:
    recipe = reading.read(name).recipe
    assert len(presets()[name].read_text().splitlines()) <= 30
    assert re.search(r"minute|second", summary(presets()[name]))
    assert {"val.loss", "minutes"} <= recipe.expect.keys()
    if not recipe.objective.dataset().STREAM:
        pipeline = recipe.objective.pipeline()
        assert {f"val.{name}" for name in (*pipeline.METRICS, *pipeline.GENERATION_METRICS)} & recipe.expect.keys()


OTHER_NAMES = [
    name for name in presets() if not set(files_of(reading.read(name).recipe.data)) <= set(built_in_corpora())
]
"""Recipes that train on files which do not come along."""


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_recipe_of_files_that_are_not_shipped_says_where_they_are_had(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, which also an installed recipe prints; of files that are named instead nothing is said."""
    monkeypatch.chdir(tmp_path)
    home = reading.read(name).recipe.data.home
    assert home is not None
    assert re.search(r"https://[a-z.]+/", home)
    done = minitf("pretrain", name)
    refused(done, "data.train", f"{tmp_path}/data/", ": no such file; ", home, "; or data.train=... names another file")
    assert len([line for line in done.stderr.splitlines() if not line.startswith("warning: ")]) == 1
    other = (
        "data.train={source: a.en, target: a.de}"
        if isinstance(reading.read(name).recipe.data.train, FilePair)
        else "data.train=a.tsv"
    )
    assert home not in minitf("pretrain", name, other).stderr
    assert reading.read(name, [other]).recipe.data.home is None
    assert reading.read(name, ["data.val=null"]).recipe.data.home == home, "null names no other files"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISING)
def test_a_shipped_recipe_keeps_its_promise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that names files of its own finds them below the working folder."""
    monkeypatch.chdir(DATA.parent if DATA.exists() else tmp_path)
    train = reading.read(name).recipe.data.train
    file = str(train.source if isinstance(train, FilePair) else train)
    if not isinstance(train, CorpusSettings) and file not in built_in_corpora() and not Path(file).exists():
        pytest.skip(f"needs {file}")
    done = minitf("pretrain", name, "-d", tmp_path / name, "--expect")
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_quickstart_writes_words_of_its_corpus_and_copies_no_dozen_of_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert minitf("pretrain", "quickstart", "-d", run).exit_code == 0
    trained = open_trained(run)
    store = evaluation_data(trained, None, "train")
    corpus = re.findall(r"\w+", trained.tokenizer.decode(np.asarray(store.ids)).lower())
    sample = re.findall(r"\w+", sorted((run / "samples").iterdir())[-1].read_text().lower())
    long_words = [word for word in sample if len(word) >= 3]
    known = set(corpus)
    assert len(long_words) > 50
    assert sum(word in known for word in long_words) >= 0.8 * len(long_words)
    runs = {tuple(corpus[i : i + 12]) for i in range(len(corpus) - 11)}
    assert not any(tuple(sample[i : i + 12]) in runs for i in range(len(sample) - 11))


@pytest.mark.slow
@needs_shakespeare
def test_gpt_char_is_better_than_nanogpt_on_its_own_text_and_split(tmp_path: Path) -> None:
    """nanoGPT's README promises 1.88 nats a character for this shape on a CPU."""
    gate = ("--assert", "val.loss<=1.88")
    done = minitf(
        "pretrain", "gpt-char", f"data.train={SHAKESPEARE}", "data.split=tail 10%", "-d", tmp_path / "run", *gate
    )
    assert done.exit_code == 0, done.stderr
    assert sum(p.numel() for p in open_trained(tmp_path / "run").model.parameters()) <= 820_000


@pytest.mark.slow
@needs_shakespeare
def test_bert_nano_beats_counts_of_both_neighbours_at_the_same_masked_positions(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert minitf("pretrain", "bert-nano", f"data.train={SHAKESPEARE}", "-d", run).exit_code == 0
    trained = open_trained(run)
    objective = trained.recipe.objective.build(trained.tokenizer.vocabulary)
    counts = BothNeighbours(np.asarray(evaluation_data(trained, None, "train").ids), trained.tokenizer.vocabulary.size)
    losses, hits, positions = np.zeros(2), np.zeros(2), 0
    for rows in pack(trained.recipe, evaluation_data(trained, None, "val"), trained.tokenizer, objective).eval_rows(16):
        batch = objective.prepare(rows)
        with torch.inference_mode():
            scores = trained.model.logits(trained.model(batch.inputs, at=batch.target_positions).y).log_softmax(-1)
        losses[0] -= float(scores.gather(1, batch.labels[:, None]).sum())
        hits[0] += int((scores.argmax(-1) == batch.labels).sum())
        ids = np.pad(batch.inputs.ids.numpy(), ((0, 0), (1, 1)), constant_values=-1)
        for flat, label in zip(batch.target_positions.tolist(), batch.labels.tolist(), strict=True):
            row, place = divmod(flat, ids.shape[1] - 2)
            chances = counts.probabilities(ids[row, place], ids[row, place + 2])
            losses[1] -= math.log(chances[label])
            hits[1] += int(chances.argmax()) == label
            positions += 1
    assert losses[0] < losses[1], losses / positions
    assert hits[0] > hits[1], hits / positions
