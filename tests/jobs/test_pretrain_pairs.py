"""An encoder-decoder from pairs to a judged run: what it learns and needs for that, what its folder holds, and what is
refused.
"""

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import DATA, EXACT, TINY, content, evaluated, lines, minitf, record, refused, tiny_model, trained
from toys import present

from mini_tf.generation.translation import Translator
from mini_tf.run.folder import Run
from mini_tf.scores.text_scores import corpus_scores, summary_scores
from mini_tf.trained.evaluating import evaluate_trained, evaluation_data
from mini_tf.trained.opening import Trained, open_trained

WORDS = ["red", "dog", "sun", "tree", "blue", "cat", "moon", "fish", "green", "bird"]
REVERSING = """
tokenizer: {kind: bpe, vocab_size: 300}
model:
  {kind: encoder_decoder, d_model: 64, n_layers: 1, n_heads: 4, activation: relu2, norm: rms, norm_weight: false,
    init: zero,
   positions: learned, attention: {kind: softmax, qk_norm: true, scale: 0.3}}
optimizer: {kind: muon, lr: 0.02, head_lr: 0.01, embedding_lr: 0.03, momentum: 0.9, weight_decay: 0, clip: 0}
schedule: {kind: wsd, warmup: 0, decay: 0.5}
train: {steps: 120, batch_tokens: 500, context: 16}
eval: {translations: 0}
generate: {num_beams: 2, max_new_tokens: 12}
"""
HELD_OUT = 26
"""Pairs of the reversing task that nobody learns from."""

SOURCE_TOKENIZER = "source_tokenizer.json"
PAIRS = f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 5%}}"
TWO_VOCABULARIES = "tokenizer={kind: bpe, vocab_size: 300, source: {kind: char}}"
FEW = ("train.steps=4", "eval.every_steps=2", "eval.translations=4", "generate.max_new_tokens=4")
TINY_MODEL = (tiny_model("encoder_decoder"), *FEW)
SMALL = (PAIRS, *TINY_MODEL)
FIGURES = {"rouge1", "rouge2", "rougeL", "bleu", "chrf", "exact_match"}


@pytest.fixture(scope="module")
def reversing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe beside its data: sentences of different words, and the same words from last to first."""
    folder, draw = tmp_path_factory.mktemp("reversing"), random.Random(0)
    sentences = [draw.sample(WORDS, draw.randint(3, 6)) for _ in range(600)]
    (folder / "source.txt").write_text("".join(" ".join(words) + "\n" for words in sentences))
    (folder / "target.txt").write_text("".join(" ".join(reversed(words)) + "\n" for words in sentences))
    recipe = yaml.safe_load(REVERSING) | {
        "data": {"train": {"source": "source.txt", "target": "target.txt"}, "split": "4%"}
    }
    (folder / "reversing.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "reversing.yaml"


@pytest.fixture(scope="module")
def learnt(reversing: Path) -> Path:
    """A run in the middle of learning, whose last steps were made at a full rate again; to be read only."""
    folder = reversing.parent / "learnt"
    few = ("train.steps=30", "eval.every_steps=10", "eval.translations=8", "checkpoint.keep_last=9")
    trained(folder, *few, recipe=reversing)
    assert minitf("pretrain", reversing, *EXACT, "log.samples=0", *few, "-d", folder, "--extend", "2").exit_code == 0
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run with a vocabulary for each side; to be read only."""
    return trained(tmp_path_factory.mktemp("runs") / "two", *SMALL, TWO_VOCABULARIES)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run with one vocabulary for both sides; to be read only."""
    return trained(tmp_path_factory.mktemp("runs") / "one", *SMALL)


@pytest.fixture
def copy(two: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two, tmp_path / "run"))


def scored(model: Trained, pairs: list[tuple[str, str]]) -> dict[str, float]:
    """One source at a time."""
    translator = Translator(model.model, model.tokenizer, model.source_tokenizer, model.recipe.generate)
    alone = [best.text for source, _ in pairs for [best] in translator.translate([source])]
    targets = [[target] for _, target in pairs]
    return summary_scores(alone, targets) | corpus_scores(alone, targets)


# What is learnt, and what it takes.


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe on eight sentences alone, the same four words in two orders each; beside two others that are held
    out.
    """
    folder, sentences = tmp_path_factory.mktemp("eight"), []
    for first, second, third, fourth in zip(WORDS[:4], WORDS[4:8], WORDS[1:5], WORDS[6:], strict=True):
        sentences += [[first, second, third, fourth], [first, third, second, fourth]]
    files = {"train": sentences, "val": [WORDS[:3], WORDS[7:]]}
    for name, rows in files.items():
        (folder / f"{name}.source").write_text("".join(" ".join(words) + "\n" for words in rows))
        (folder / f"{name}.target").write_text("".join(" ".join(reversed(words)) + "\n" for words in rows))
    data = {"data": {name: {"source": f"{name}.source", "target": f"{name}.target"} for name in files}}
    few = {"train": {"steps": 60, "batch_size": 8, "context": 16}, "eval": {"translations": 0}}
    (folder / "eight.yaml").write_text(yaml.safe_dump(yaml.safe_load(REVERSING) | data | few))
    return folder / "eight.yaml"


def test_an_encoder_decoder_learns_eight_sentences_by_heart(eight: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", recipe=eight)
    measured = evaluated(run, "--split", "train", "--assert", "exact_match>=1", "--assert", "bleu>99")
    assert measured["loss"] < 0.1


@pytest.mark.parametrize(
    ("without", "most"), [("model.cross_attention=null", 1 / 8), ("model.encoder.positions=none", 3 / 4)]
)
def test_it_cannot_without_the_source_or_without_knowing_where_its_words_stand(
    without: str, most: float, eight: Path, tmp_path: Path
) -> None:
    """Without the source all eight get one answer; without positions two orders of the same words get one, rounding
    apart.
    """
    run = trained(tmp_path / "run", without, recipe=eight)
    assert evaluated(run, "--split", "train")["exact_match"] <= most
    missed = minitf("evaluate", run, "--split", "train", "--assert", "exact_match>0.9")
    assert (missed.exit_code, missed.stdout.count("exact_match")) == (8, 1)
    assert "exact_match is " in missed.stderr


@pytest.mark.parametrize("positions", present("positions", "learned", "rotary", "t5", "transformer_xl"))
def test_every_sort_of_position_trains_on_after_translating(positions: str, tmp_path: Path) -> None:
    """Tables that a decoder keeps must serve the next step, too."""
    run = trained(tmp_path / "run", *SMALL, f"model.positions.kind={positions}", "train.steps=2", "eval.every_steps=1")
    assert all(line["grad_norm"] > 0 and line.keys() >= {f"val.{name}" for name in FIGURES} for line in lines(run))


# The folder.


def test_a_run_of_pairs_has_the_files_of_any_run_and_a_tokenizer_for_each_vocabulary(
    one: Path, two: Path, tmp_path: Path
) -> None:
    plain = trained(tmp_path / "plain", "train.steps=1")
    names = [{path.name for path in run.iterdir()} for run in (plain, one, two)]
    assert names == [names[0], names[0], {*names[0], SOURCE_TOKENIZER}]
    configs = [json.loads((run / "config.json").read_text()) for run in (plain, one, two)]
    assert [config.keys() - configs[0].keys() for config in configs] == [set(), set(), {"source_vocabulary_size"}]
    models = [open_trained(run, device="cpu") for run in (one, two)]
    assert [model.source_tokenizer is model.tokenizer for model in models] == [True, False]
    assert models[1].model.source_embedding.tokens.num_embeddings == configs[2]["source_vocabulary_size"]  # type: ignore[union-attr]
    assert [record(run)["hashes"].keys() for run in (one, two)] == [
        {"data", "tokenizer"},
        {"data", "tokenizer", "source_tokenizer"},
    ]


def test_samples_are_translations_beside_their_sources_and_targets(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *EXACT, *SMALL, "-d", tmp_path / "run")
    assert done.exit_code == 0
    samples = sorted((tmp_path / "run" / "samples").iterdir())
    assert [path.name for path in samples] == [f"step-{step:08d}.txt" for step in (2, 4)]
    rows = [[line.partition(":")[0] for line in block.splitlines()] for block in samples[-1].read_text().split("\n\n")]
    assert rows == [["source", "target", "model"]] * 8
    assert f"; minitf generate {tmp_path / 'run'}" in done.stderr


def wrong_config(**changes: Any) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        config = json.loads((run / "config.json").read_text()) | changes
        (run / "config.json").write_text(
            json.dumps({name: value for name, value in config.items() if value is not None})
        )

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / SOURCE_TOKENIZER).unlink(), (SOURCE_TOKENIZER,)),
        (lambda run: (run / SOURCE_TOKENIZER).write_text("{"), (SOURCE_TOKENIZER,)),
        (lambda run: (run / SOURCE_TOKENIZER).write_bytes(b"\xff" * 40), (SOURCE_TOKENIZER,)),
        (
            lambda run: shutil.copy(run / "tokenizer.json", run / SOURCE_TOKENIZER),
            ("config.json", "source_vocabulary_size"),
        ),
        (wrong_config(source_vocabulary_size=None), ("config.json", "the key 'source_vocabulary_size' is missing")),
        (
            wrong_config(source_vocabulary_size=7),
            ("config.json", "source_vocabulary_size 7 differs from the tokenizer's"),
        ),
        (wrong_config(source_vocabulary_size="\x1b[31m"), ("config.json", "source_vocabulary_size")),
        (wrong_config(vocabulary_size=7), ("config.json", "vocabulary_size 7 differs from the tokenizer's")),
    ],
)
def test_a_damaged_source_side_is_5_and_one_line(
    damage: Callable[[Path], object], words: tuple[str, ...], copy: Path
) -> None:
    damage(copy)
    for command in (("evaluate", copy), ("generate", copy, "red dog"), ("inspect", "model", copy)):
        done = minitf(*command)
        refused(done, *words, exit_code=5)
        assert done.stderr.count("\n") == 1


def test_another_source_tokenizer_of_the_same_size_is_no_longer_what_the_run_was_trained_with(copy: Path) -> None:
    tokenizer = copy / SOURCE_TOKENIZER
    text = tokenizer.read_text()
    swapped = text.replace('"e"', '"\0"').replace('"d"', '"e"').replace('"\0"', '"d"')
    assert swapped != text
    tokenizer.write_text(swapped)
    refused(minitf("evaluate", copy), "have changed since training", exit_code=5)


def test_a_source_tokenizer_that_no_one_asked_for_is_left_alone(one: Path, tmp_path: Path) -> None:
    run, before = Path(shutil.copytree(one, tmp_path / "run")), evaluated(one)
    (run / SOURCE_TOKENIZER).write_text("{")
    assert evaluated(run) == before


# Figures.


def test_the_last_figures_are_of_all_pairs_and_of_the_best_step_and_those_on_the_way_of_a_few(
    learnt: Path, reversing: Path
) -> None:
    made, reports = record(learnt), {line["step"]: line for line in lines(learnt)}
    assert [step for step, line in reports.items() if "val.bleu" in line] == [10, 20, 30, 32]
    losses = {step: line["val.loss"] for step, line in reports.items() if "val.loss" in line}
    chosen = min(losses, key=losses.__getitem__)  # 30 or 32, which is up to the processor
    assert (made["best"]["step"], made["model"]["step"], made["step"]) == (chosen, chosen, 32)
    best = open_trained(learnt, device="cpu")
    sources, targets = ((reversing.parent / f"{side}.txt").read_text().splitlines() for side in ("source", "target"))
    held_out = held_out_of(learnt)
    assert len(held_out) == HELD_OUT
    assert {*held_out} <= {*zip(sources, targets, strict=True)}
    few, whole, judged = scored(best, held_out[:8]), scored(best, held_out), evaluated(learnt)
    assert few != whole
    for name in FIGURES:
        assert reports[chosen][f"val.{name}"] == pytest.approx(few[name], abs=1e-9)
        assert made["metrics"][f"val.{name}"] == pytest.approx(whole[name], abs=1e-9)
        assert judged[name] == pytest.approx(whole[name], abs=1e-9)
    last = scored(open_trained(learnt, "last", "cpu"), held_out)
    assert evaluated(learnt, "--step", "last")["chrf"] == pytest.approx(last["chrf"], abs=1e-9)
    assert chosen == 32 or last["chrf"] != whole["chrf"]


def held_out_of(run: Path) -> list[tuple[str, str]]:
    """The held-out pairs as the store of ids gives them back."""
    model = open_trained(run, device="cpu")
    store = evaluation_data(model, None, "val")
    assert store.source is not None
    numbers, sides = range(store.n_documents), ((store.source, model.source_tokenizer), (store, model.tokenizer))
    sources, targets = ([tokenizer.decode(side.document(n)) for n in numbers] for side, tokenizer in sides)
    return list(zip(sources, targets, strict=True))


def test_other_pairs_are_judged_alike_as_two_files_and_as_a_table(
    learnt: Path, reversing: Path, tmp_path: Path
) -> None:
    rows = held_out_of(learnt)
    for name, column in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{row[column]}\n" for row in rows))
    (tmp_path / "t.tsv").write_text("source\ttarget\n" + "".join("\t".join(row) + "\n" for row in rows))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"target": b, "source": a, "n": 1}) + "\n" for a, b in rows))
    own = evaluated(learnt)
    assert own["split"] == "val"
    for data in (
        f"{{source: {tmp_path / 'a.txt'}, target: {tmp_path / 'b.txt'}}}",
        tmp_path / "t.tsv",
        tmp_path / "t.jsonl",
    ):
        other = evaluated(learnt, "--data", data)
        assert other.pop("split") == "data"
        assert other == {name: value for name, value in own.items() if name != "split"}
    turned = evaluated(learnt, "--data", f"{{source: {tmp_path / 'b.txt'}, target: {tmp_path / 'a.txt'}}}")
    assert turned["targets"] == own["targets"]
    assert turned["loss"] != own["loss"]


def test_the_training_side_is_judged_too(two: Path) -> None:
    val, train = evaluated(two), evaluated(two, "--split", "train")
    assert train["split"] == "train"
    assert train["targets"] > 5 * val["targets"]
    assert train.keys() == val.keys() >= {*FIGURES, "loss", "bits_per_byte", "bleu_signature", "chrf_signature"}
    assert minitf("evaluate", two, "--split", "train", "--data", DATA / "reversed.tsv").exit_code == 2
    assert "bleu is 0, since no generated text has 4 words" in minitf("evaluate", two).stderr


def test_figures_of_an_average_are_those_of_its_weights(learnt: Path) -> None:
    held_out = held_out_of(learnt)
    mean = open_trained(learnt, device="cpu", average=2)
    found = evaluated(learnt, "--average", "2")
    assert {name: found[name] for name in FIGURES} == pytest.approx(scored(mean, held_out), abs=1e-9)
    assert found["chrf"] != evaluated(learnt, "--step", "last")["chrf"]


# Without translations.


def unscored(run: Path) -> bool:
    """Whether translations were nowhere judged, though everything else was."""
    figures = {f"val.{name}" for name in FIGURES}
    told = [*lines(run), record(run)["metrics"]]
    return all(not figures & line.keys() for line in told) and {"val.loss", "val.accuracy"} <= told[-1].keys()


def test_no_translations_are_made_where_none_are_wanted(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *SMALL, "eval.translations=0")
    assert unscored(run)
    assert evaluated(run).keys() >= FIGURES


def test_training_and_evaluate_go_on_without_what_scores_and_a_gate_that_needs_it_is_refused_before_the_work(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("sacrebleu", "rouge_score"):
        monkeypatch.setitem(sys.modules, package, None)  # importing it raises ImportError
    done = minitf("pretrain", TINY, *EXACT, *SMALL, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert unscored(tmp_path / "run")
    told = "rouge-score and sacrebleu are not installed, so there is no ROUGE, BLEU and chrF: pip install"
    assert done.stderr.count(told) == 1
    assert len(list((tmp_path / "run" / "samples").iterdir())) == 2
    without = minitf("evaluate", two)
    assert without.exit_code == 0
    assert told in without.stderr
    assert "loss" in without.stdout
    assert "bleu" not in without.stdout
    monkeypatch.setattr("mini_tf.trained.evaluating.evaluate_trained", None)  # what would be the work
    missing = minitf("evaluate", two, "--assert", "bleu>1")
    refused(missing, "BLEU and chrF need sacrebleu; pip install", exit_code=9)
    assert missing.stderr.count("\n") == 1
    monkeypatch.setattr("mini_tf.trained.evaluating.evaluate_trained", evaluate_trained)
    assert minitf("evaluate", trained(tmp_path / "decoder", "train.steps=1")).exit_code == 0
    assert minitf("generate", two, "red dog").exit_code == 0


# The data, before and after.


def files(folder: Path) -> tuple[Path, Path, str]:
    """Two files of lines, and the override that names them."""
    rows = [line.split("\t") for line in (DATA / "reversed.tsv").read_text().splitlines()[1:]]
    for side in range(2):
        (folder / f"{side}.txt").write_text("".join(f"{row[side]}\n" for row in rows))
    source, target = folder / "0.txt", folder / "1.txt"
    return source, target, f"data={{train: {{source: {source}, target: {target}}}, split: 10%}}"


def test_data_that_changed_since_training_are_5_and_another_run(tmp_path: Path) -> None:
    source, _, named = files(tmp_path)
    command = (*TINY_MODEL, named)
    run = trained(tmp_path / "run", *command)
    before = evaluated(run)
    text = source.read_text()
    source.write_text(text.replace("red", "der", 1))
    told = content(run)
    refused(minitf("evaluate", run), f"the data of {run} have changed since training; --data FILE", exit_code=5)
    refused(
        minitf("pretrain", TINY, *EXACT, *command, "-d", run), "was started with other contents of data", exit_code=5
    )
    assert content(run) == told
    assert minitf("evaluate", run, "--data", DATA / "reversed.tsv").exit_code == 0
    assert minitf("generate", run, "red dog").exit_code == 0
    source.write_text(text)
    assert evaluated(run) == before


def test_other_pairs_that_are_unfit_are_4_and_told_by_their_line(two: Path, tmp_path: Path) -> None:
    source, target, _ = files(tmp_path)
    both = f"{{source: {source}, target: {target}}}"
    target.write_text(target.read_text() + "one more\n")
    refused(minitf("evaluate", two, "--data", both), f"{target}:161: no corresponding line", exit_code=4)
    target.write_text("\n" + "".join(target.read_text().splitlines(keepends=True)[1:160]))
    refused(minitf("evaluate", two, "--data", both), f"{target}:1: the line is empty", exit_code=4)
    refused(minitf("evaluate", two, "--data", "/no/such.tsv"), "/no/such.tsv", exit_code=4)
    refused(minitf("evaluate", two, "--data", DATA / "tiny.txt"), "tiny.txt is not a table", exit_code=4)


def test_data_that_change_while_a_run_is_under_way_change_no_figure_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held out was kept with the ids: the files are the user's, who may go on with them."""
    _, target, named = files(tmp_path)
    whole, record_ = trained(tmp_path / "whole", *TINY_MODEL, named), Run.record

    def lose(self: Run, report: dict[str, Any], seconds: float | None = None) -> None:
        record_(self, report, seconds)
        if report["step"] == 3:
            target.write_text("something else\n")

    monkeypatch.setattr(Run, "record", lose)
    run = tmp_path / "run"
    done = minitf("pretrain", TINY, *EXACT, *TINY_MODEL, named, "log.samples=0", "log.every_steps=1", "-d", run)
    assert done.exit_code == 0, done.stderr
    figures = [
        {name: value for name, value in record(one)["metrics"].items() if name != "minutes"} for one in (run, whole)
    ]
    assert figures[0] == figures[1]
    assert "val.bleu" in figures[0]


# What every run can do.


def test_a_diverged_run_of_pairs_is_replayed_and_shows_both_sides(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = minitf(
        "pretrain", TINY, *EXACT, *SMALL, TWO_VOCABULARIES, "train.stop_above=1", "train.micro_batch_size=2", "-d", run
    )
    assert done.exit_code == 7
    assert "step 1: the loss is " in done.stderr
    replayed = minitf("inspect", "crash", run)
    assert replayed.exit_code == 0
    assert "it diverges again in the same way" in replayed.stdout
    result = json.loads(minitf("inspect", "crash", run, "--json").stdout)["result"]
    assert result["reproduced"]
    rows = [row["text"].split(" => ") for row in result["rows"]]
    assert len(rows) == 8
    assert all(source.split() == target.split()[::-1] for source, target in rows)
    assert {"source_embedding", "encoder.layers.0", "stack.layers.0"} <= {level["module"] for level in result["levels"]}
