"""Data mixtures: shares, epochs and names of sources, words of the text, and figures of each source."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import DATA, QUIET, evaluated, minitf, refused, trained

from mini_tf.data.mixture import Mixture
from mini_tf.data.split import hash_text
from mini_tf.data.tokenized import open_data
from mini_tf.recipe.corpora import DataSource
from mini_tf.recipe.reading import read
from mini_tf.system.errors import RecipeFault
from mini_tf.training.evaluation import pack
from mini_tf.training.plan import MixturePlan, make_plan

WORDS = ["the", "old", "king", "saw", "a", "small", "fox", "in", "deep", "wood", "and", "went", "home", "to", "sleep"]


def text(name: str, n_documents: int) -> str:
    draw = random.Random(name)
    documents = (" ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12))) for _ in range(n_documents))
    return "\n\n".join(f"{document} {name}{n}" for n, document in enumerate(documents))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    for name, n in {"a": 60, "b": 30, "c": 45, "va": 12, "vb": 14}.items():
        (folder / f"{name}.txt").write_text(text(name, n))
    return folder


TRAIN = "data.train=[{path: %s/a.txt, weight: 2}, {path: %s/b.txt, epochs: 3, name: books}, %s/c.txt]"
SIZES = ("train={steps: 60, batch_size: 8, context: 24}", "eval.every_steps=null", "checkpoint.keep_last=1")


def overrides(folder: Path, *more: str) -> list[str]:
    val = f"data.val=[{{path: {folder}/va.txt}}, {folder}/vb.txt]"
    return [TRAIN.replace("%s", str(folder)), val, *SIZES, *more]


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.3, 0.2], [0.01, 0.9, 0.04, 0.03, 0.02]])
def test_a_source_has_its_share_and_every_row_once_an_epoch(shares: list[float], batch_size: int) -> None:
    sizes = [7, 50, 11, 5, 3][: len(shares)]
    plan = MixturePlan(np.cumsum([0, *sizes]), np.array(shares), batch_size, seed=5)
    n_steps = 25 * plan._window // batch_size  # so that the last window is complete
    steps = [plan.rows(step) for step in range(n_steps)]
    rows, epochs, keys = (np.concatenate(arrays) for arrays in zip(*steps, strict=True))
    assert len(np.unique(keys)) == len(keys)
    source = np.searchsorted(plan.firsts, rows, side="right") - 1
    for number, (share, size) in enumerate(zip(shares, sizes, strict=True)):
        own = source == number
        assert abs(own.sum() - share * len(rows)) <= len(shares) ** 2 + batch_size
        for epoch in range(int(epochs[own].max(initial=0))):  # but the last, which may not be complete
            assert sorted(rows[own & (epochs == epoch)] - plan.firsts[number]) == [*range(size)]
        assert np.diff(epochs[own]).min(initial=0) >= -1, "an epoch begins when the one before has ended"
    again = MixturePlan(plan.firsts, plan.shares, batch_size, seed=5).rows(n_steps - 1)
    assert all(np.array_equal(one, other) for one, other in zip(again, steps[-1], strict=True))
    assert not np.array_equal(MixturePlan(plan.firsts, plan.shares, 64, 6).rows(0).rows, plan.rows(0).rows)


def opened(folder: Path, *more: str) -> tuple[Any, Any, Mixture]:
    recipe = read(str(DATA / "tiny.yaml"), overrides(folder, *more)).recipe
    data = open_data(recipe.data, recipe.tokenizer, recipe.objective)
    packing = pack(recipe, data.train, data.tokenizer, recipe.objective.build(data.tokenizer.vocabulary))
    assert isinstance(packing, Mixture)
    return recipe, data, packing


def test_epochs_are_exact_and_weights_divide_the_rest(folder: Path) -> None:
    recipe, _, packing = opened(folder)
    plan = make_plan(recipe.train, packing)
    rows = np.concatenate([plan.rows(step).rows for step in range(60)])
    a, books, c = np.histogram(rows, packing.firsts)[0].tolist()
    assert books == pytest.approx(3 * packing.parts[1].n_rows, abs=2)
    assert a == pytest.approx(2 * c, abs=4)
    assert a + books + c == 480


def test_a_single_source_with_a_name_is_measured_by_it(folder: Path) -> None:
    _, _, packing = opened(folder, f"data.train=[{{path: {folder}/a.txt, name: alone}}]")
    assert packing.names == ["alone"]


def test_the_rows_of_a_mixture_are_those_of_its_sources(folder: Path) -> None:
    """Tokens and documents of a source are those of its file alone; rows come in the order that was asked for."""
    recipe, data, packing = opened(folder)
    for part, name in zip(data.train.by_source(), "abc", strict=True):
        alone = read(str(DATA / "tiny.yaml"), [f"data.train={folder}/{name}.txt", f"data.val={folder}/va.txt"]).recipe
        other = open_data(alone.data, alone.tokenizer, alone.objective).train
        assert np.array_equal(part.ids, other.ids)
        assert np.array_equal(part.starts, other.starts)
        assert (part.raw_bytes, part.words) == (other.raw_bytes, len((folder / f"{name}.txt").read_text().split()))
    rows = np.random.default_rng(0).permutation(packing.n_rows)
    keys = rows.astype(np.uint64)
    taken = packing.take(rows, 1, keys)
    assert np.array_equal(taken.keys, keys)
    for row in (0, 5, len(rows) - 1):
        single = packing.take(rows[row : row + 1], 1, keys[row : row + 1])
        assert np.array_equal(single.ids[0], taken.ids[row])
    first_of_c = packing.firsts[2:3]
    n_before = sum(part.store.n_documents for part in packing.parts[:2])
    assert packing.documents(first_of_c, 0)[0] == n_before
    usable = sum(len(part.store) - 1 for part in packing.parts)  # the first token of each is no target
    assert packing.bytes_of(usable / 2) == packing.store.raw_bytes / 2
    assert packing.documents(rows[:0], 0).tolist() == []
    assert recipe.data == read(str(DATA / "tiny.yaml"), overrides(folder)).recipe.data


@pytest.mark.parametrize(
    ("epochs", "weights", "n_rows", "expected"),
    [
        ((None, None), (None, None), 100, (0.25, 0.75)),
        ((None, None), (None, 3.0), 100, (0.25, 0.75)),
        ((2.0, None), (None, None), 100, (0.2, 0.8)),
        ((1.0, 2.0), (None, None), 70, (1 / 7, 6 / 7)),
        ((1.0, 2.0), (None, None), None, (1 / 7, 6 / 7)),
        ((2.0, None), (None, None), 20, "the run has fewer: 20"),
        ((1.0, 2.0), (None, None), 200, "are 70 rows, and the run has more: 200"),
        ((1.0, 3.0), (None, None), 70, "are 100 rows, and the run has fewer: 70"),
    ],
)
def test_shares_follow_epochs_then_weights(epochs: Any, weights: Any, n_rows: int | None, expected: Any) -> None:
    settings = [DataSource(path="f", epochs=e, weight=w) for e, w in zip(epochs, weights, strict=True)]
    mixture = Mixture(None, None, (), settings)  # type: ignore[arg-type]
    vars(mixture)["firsts"] = np.array([0, 10, 40])
    if isinstance(expected, str):
        with pytest.raises(RecipeFault, match=expected):
            mixture.shares(n_rows, 4)
    else:
        assert mixture.shares(n_rows, 4).tolist() == pytest.approx(expected)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return trained(
        folder / "run",
        *overrides(folder, "checkpoint.at_words=[100, 300, 1M]", "train.words=10k", "--assert", "val.loss.va<9"),
    )


def test_a_source_is_evaluated_as_its_file_alone(folder: Path, run: Path) -> None:
    metrics = evaluated(run)
    total = 0.0
    for name in ("va", "vb"):
        alone = evaluated(run, "--data", folder / f"{name}.txt")
        assert metrics[f"loss.{name}"] == pytest.approx(alone["loss"], rel=1e-5)
        assert metrics[f"bits_per_byte.{name}"] == pytest.approx(alone["bits_per_byte"], rel=1e-5)
        total += alone["loss"] * alone["targets"]
    assert metrics["loss"] == pytest.approx(total / metrics["targets"], rel=1e-5)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["val.loss.va"] == pytest.approx(metrics["loss.va"])


def test_micro_batches_change_no_loss_of_a_mixture(folder: Path, run: Path) -> None:
    other = trained(
        folder / "parts", *overrides(folder, "train.micro_batch_size=2", "train.words=10k", "--assert", "val.loss.va<9")
    )
    lines = [[json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()] for one in (run, other)]
    assert [line["step"] for line in lines[0][:2]] == [1, 2]
    for one, two in zip(*(logged[:2] for logged in lines), strict=True):
        assert two == pytest.approx(one, rel=1e-3)


def test_checkpoints_at_words_are_kept_and_exported(folder: Path, run: Path, tmp_path: Path) -> None:
    """Words read are those of the sources by their shares; 1M are not reached, which is said."""
    recipe, _, packing = opened(folder)
    plan = make_plan(recipe.train, packing)
    words = tokens = 0.0
    kept = list[int]()
    for step in range(60):
        for part, n in zip(packing.parts, np.histogram(plan.rows(step).rows, packing.firsts)[0].tolist(), strict=True):
            words += n * 24 * part.store.words / len(part.store)
            tokens += n * 24
        kept += [step + 1] if words >= (100, 300, 1e9)[len(kept)] else []
    saved = sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())
    assert len(kept) == 2
    assert saved[:2] == pytest.approx(kept, abs=1)
    assert saved[2:] == [60]
    assert "not read in the run, so no checkpoint: 1,000,000 words" in (run / "log.txt").read_text()
    done = minitf("export", run, "--step", str(saved[0]), "--to", "safetensors", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr


def test_no_fold_separates_a_document_of_two_sources_from_itself(folder: Path, tmp_path: Path) -> None:
    documents = (folder / "a.txt").read_text().split("\n\n")
    (tmp_path / "half.txt").write_text("\n\n".join(documents[:30]))
    train = f"data.train=[{{path: {folder}/a.txt}}, {tmp_path}/half.txt]"
    done = minitf("data", "stats", "tests/data/tiny.yaml", train, "data.val=null", "data.split={fold: 1, folds: 3}")
    assert "documents in both splits: 0" in done.stdout


@pytest.mark.parametrize(("n_first", "n_second"), [(6, 30), (1, 30), (6, 6)])
def test_no_source_is_trained_on_what_another_holds_out(n_first: int, n_second: int, tmp_path: Path) -> None:
    """The second source has the last documents of the first, and others: of few the last is held out, of many some."""
    first, others = text("a", n_first).split("\n\n"), text("b", n_second).split("\n\n")
    second = [*others[:-1], *first, others[-1]]
    for name, documents in {"first": first, "second": second}.items():
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    train = f"data.train=[{{path: {tmp_path}/first.txt}}, {tmp_path}/second.txt]"
    recipe = read(str(DATA / "tiny.yaml"), [train, "data.val=null", *SIZES]).recipe
    data = open_data(recipe.data, recipe.tokenizer, recipe.objective)
    of_val, of_train = (
        [data.tokenizer.decode(store.document(n)) for n in range(store.n_documents)] for store in (data.val, data.train)
    )
    assert of_val
    assert [text for text in of_val if any(text in other for other in of_train)] == []


def test_a_source_loses_the_head_of_a_document_that_others_hold_out(tmp_path: Path) -> None:
    """A source of few documents cuts its last one in two; of many the one of the smallest hash is held out whole."""
    many, few = text("a", 30).split("\n\n"), ["old king b0", "small fox b1"]
    held_out = min(many, key=hash_text)
    for name, documents in {"many": many, "few": [*few, held_out]}.items():
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    train = f"data.train=[{{path: {tmp_path}/many.txt}}, {tmp_path}/few.txt]"
    recipe = read(str(DATA / "tiny.yaml"), [train, "data.val=null", *SIZES]).recipe
    data = open_data(recipe.data, recipe.tokenizer, recipe.objective)
    trained_on = [data.tokenizer.decode(data.train.document(n)) for n in range(data.train.n_documents)]
    assert [document for document in trained_on if held_out.startswith(document)] == []
    assert {*few} <= {*trained_on}
    assert "few: 1 of 3 different training documents are also in the validation data of other sources" in "".join(
        data.notes
    )


def test_a_source_that_others_hold_out_is_refused(tmp_path: Path) -> None:
    document, *others = text("a", 7).split("\n\n")
    (tmp_path / "few.txt").write_text("\n\n".join([*others, document]))
    (tmp_path / "same.txt").write_text("\n\n".join([document, "end"]))
    train = f"data.train=[{{path: {tmp_path}/few.txt}}, {tmp_path}/same.txt]"
    done = minitf("pretrain", DATA / "tiny.yaml", train, "data.val=null", *SIZES, "-d", tmp_path / "run")
    refused(done, "data.train: same: 1 of 1 different training documents are also in the validation data of other")


def test_stats_say_how_often_each_source_is_read(folder: Path) -> None:
    done = minitf("data", "stats", DATA / "tiny.yaml", *overrides(folder), "--json")
    sources = json.loads(done.stdout)["result"]["sources"]
    assert [*sources] == ["a", "books", "c"]
    assert sources["books"]["epochs"] == pytest.approx(3)
    assert sources["a"]["share of rows"] == pytest.approx(2 * sources["c"]["share of rows"])
    assert sum(source["words"] for source in sources.values()) == sum(
        len((folder / f"{name}.txt").read_text().split()) for name in "abc"
    )


@pytest.mark.parametrize(
    ("more", "told", "exit_code"),
    [
        (("train.words=100",), "words of training text, more than train.words 100", 4),
        (("data.train=[{path: x, weight: 1, epochs: 2}]",), "x has a weight and epochs; keep one of them", 3),
        (("data.train=[{path: x}, {path: y/x}]",), "two sources have the name 'x'", 3),
        (("data.val=[{path: x, weight: 1}]",), "validation data are read once; remove weight and epochs", 3),
        (("data.train=[{path: x, wieght: 1}]",), "did you mean weight?", 3),
        (("data.train=[{path: x}, {path: y, weight: -1}]",), "data.train.1.weight (y): must be greater than 0", 3),
        (("data.train=[x, {path: y, name: z, epochs: a}]",), "data.train.1.epochs (z): must be a finite number", 3),
        (("data.train=[{path: x}, {weight: 2}]",), "data.train.1.path: is missing", 3),
        (("train.batch_tokens=400",), "a mixture has rows by source; use train.batch_size", 3),
        (("train={time: 30, steps: null}",), "of which a source has epochs; use train.steps", 3),
        (("data.split=tail 10%", "data.val=null"), "splits one stream, which a mixture is not", 3),
        (("objective.kind=classify",), "a mixture is of running text, and classify reads examples", 3),
        (("train.steps=4",), "the epochs of its sources are", 3),
    ],
)
def test_a_mixture_that_cannot_be_read_is_refused(
    folder: Path, more: tuple[str, ...], told: str, exit_code: int
) -> None:
    target = folder / "refused"
    done = minitf("pretrain", DATA / "tiny.yaml", *QUIET, *overrides(folder, *more), "-d", target)
    refused(done, told, exit_code=exit_code)
    assert not target.exists()
