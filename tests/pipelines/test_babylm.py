"""`minitf evaluate --babylm`: files in each format of BabyLM's evaluation data, figures, predictions and refusals."""

import csv
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import minitf, refused, tiny_model, trained
from scipy import stats

from mini_tf.cli.evaluation.text_scores import _over_runs
from mini_tf.data.formats.babylm_files import read_babylm
from mini_tf.pipelines import pipeline_of
from mini_tf.scores import babylm_scores
from mini_tf.system.errors import DataFault
from mini_tf.trained.opening import open_trained

TEXT = "the old king of the sea was never seen by the young sailor who went home again"
WORDS = TEXT.split()
TIMES = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound", "self_paced_reading_time", "Subtlex_log10")
BOX = "Box 0 has the {0}. Box 0 has"
ROWS: dict[str, list[Mapping[str, object]]] = {
    "blimp_filtered/agreement.jsonl": [
        {"sentence_good": good, "sentence_bad": bad, "UID": "agreement", "field": "morphology"}
        for good, bad in (
            ("the king was old", "the king were old"),
            ("a king sleeps", "a king sleep"),
            ("a king", "a king"),
        )
    ],
    "blimp_filtered/island.jsonl": [{"sentence_good": "who saw it?", "sentence_bad": "it saw who?", "UID": "island"}],
    "supplement_filtered/hypernym.jsonl": [{"sentence_good": "a dog moves", "sentence_bad": "a dog rusts"}],
    "ewok_filtered/social-relations.jsonl": [
        {"Domain": "social-relations", "Context1": "Ann leads.", "Target1": "Ann is first.", "Target2": "Ann is last."}
    ],
    "entity_tracking/regular.jsonl": [
        {"input_prefix": BOX.format("apple"), "options": [" the apple.", " nothing.", " a pear."], "numops": 0},
        {"input_prefix": BOX.format("pear"), "options": [" the pear.", " nothing."], "numops": 1},
    ],
    "comps/comps_wugs_dist-before.jsonl": [
        {f"prefix_{name}acceptable": f"A wug is a {animal}. A wug" for name, animal in (("", "dog"), ("un", "cat"))}
        | {"property_phrase": "barks."}
    ],
    "wug_past_tense/wug_past_tense.jsonl": [
        {"sentences": f"they {word}ed\tthey {word}t", "ratio": ratio}
        for word, ratio in {"bla": 0.9, "cro": 0.2, "dep": 0.55, "fim": 0.1, "gor": 0.7}.items()
    ],
}


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bootstrap, which takes most of a tiny evaluation's time."""
    monkeypatch.setattr(babylm_scores, "SAMPLES", 20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """decoder, encoder, hybrid, and seeds: a set of two."""
    folder = tmp_path_factory.mktemp("babylm") / "outputs"
    few = ("train.steps=2", "model.init_std=0.3", "data.split=10%")
    trained(folder / "decoder", *few)
    trained(folder / "encoder", *few, tiny_model("encoder"))
    trained(folder / "hybrid", *few, "objective.kind=hybrid")
    trained(folder / "seeds", *few, "train.seeds=2")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation_data") / "full_eval"
    for name, rows in ROWS.items():
        write(folder / name, rows)
    draw, rows = random.Random(0), []
    for n in range(1, len(WORDS)):
        previous = (
            {"prev_item": " ".join(WORDS[: n - 1]), "prev_word": WORDS[n - 1]}
            if n > 1
            else {"prev_item": "", "prev_word": ""}
        )
        row = {"item": " ".join(WORDS[:n]), "word": WORDS[n], **previous, "length": len(WORDS[n]), "context_length": n}
        rows.append(
            row | {"prev_length": len(WORDS[n - 1]) if n > 1 else "NA"} | {time: draw.random() for time in TIMES}
        )
    (folder / "reading").mkdir()
    with (folder / "reading" / "reading_data.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows * 3)
    (folder / "cdi_childes").mkdir()
    (folder / "blimp_filtered" / "README.md").write_text("none\n")
    return folder


def write(file: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def measured(run: Path, *words: str | Path) -> dict[str, Any]:
    done = minitf("evaluate", run, *words, "--json")
    assert done.exit_code == 0, done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    return envelope


@pytest.mark.parametrize(
    ("name", "kinds"), [("decoder", ["causal"]), ("encoder", ["token"]), ("hybrid", ["causal", "token"])]
)
def test_each_task_has_the_figure_of_its_texts_log_probabilities(
    runs: Path, data: Path, name: str, kinds: list[str]
) -> None:
    found = measured(
        runs / name, "--babylm", data, "--assert", "babylm.blimp>=0", "--assert", f"babylm.ewok.{kinds[-1]}<=1"
    )
    assert [*found["result"]["scores"]] == kinds
    opened, metrics = open_trained(runs / name, device="cpu"), found["metrics"]
    for kind in kinds:
        scorer = pipeline_of(opened).text_scorer(kind)

        def right(good: str, bad: str, starts: Sequence[int] = (0, 0)) -> float:
            one, other = scorer.texts([good, bad], starts=starts)  # noqa: B023
            return 0.5 if one == other else float(one > other)

        agreement = [
            right(str(row["sentence_good"]), str(row["sentence_bad"])) for row in ROWS["blimp_filtered/agreement.jsonl"]
        ]
        assert agreement[2] == 0.5
        assert metrics[f"babylm.blimp.{kind}"] == pytest.approx(
            (sum(agreement) / 3 + right("who saw it?", "it saw who?")) / 2
        )
        assert metrics[f"babylm.ewok.{kind}"] == right("Ann leads. Ann is first.", "Ann leads. Ann is last.", [10, 10])
        assert metrics[f"babylm.comps.{kind}"] == right(
            "A wug is a dog. A wug barks.", "A wug is a cat. A wug barks.", [22, 22]
        )
        pear = right("Box 0 has the pear. Box 0 has the pear.", "Box 0 has the pear. Box 0 has nothing.", [29, 29])
        assert found["result"]["scores"][kind]["entity_tracking"]["subtasks"]["regular_1_ops"] == pear
        pairs = [str(row["sentences"]).split("\t") for row in ROWS["wug_past_tense/wug_past_tense.jsonl"]]
        odds = [one - other for one, other in (scorer.texts(pair) for pair in pairs)]
        ratios = [float(str(row["ratio"])) for row in ROWS["wug_past_tense/wug_past_tense.jsonl"]]
        assert metrics[f"babylm.wug_past.{kind}"] == pytest.approx(stats.spearmanr(odds, ratios).statistic)
        assert found["result"]["scores"][kind]["blimp"]["ties"] == 1
        assert found["result"]["scores"][kind]["blimp"]["official"] == pytest.approx(
            metrics[f"babylm.blimp.{kind}"] + 0.5 / 3 / 2
        )
    assert metrics["babylm.blimp"] == metrics[f"babylm.blimp.{kinds[0]}"]
    assert 0 <= metrics["babylm.reading.eye_tracking"] <= 1
    notes = " ".join(found["result"]["notes"])
    assert "absent" in notes and "wug_adj (wug_adj_nominalization)" in notes  # noqa: PT018
    assert "cdi_childes" in notes and "blimp_filtered/README.md" in notes  # noqa: PT018


def test_predictions_have_the_form_of_babylms_script(runs: Path, data: Path, tmp_path: Path) -> None:
    """What `collate_preds` joins: by task and subtask, each with its number; surprisals of words in nats."""
    measured(runs / "decoder", "--babylm", data, "-o", tmp_path / "one.json")
    found = json.loads((tmp_path / "one.json").read_text())
    assert [*found] == ["blimp", "blimp_supplement", "ewok", "entity_tracking", "comps", "wug_past", "reading"]
    assert [row["id"] for row in found["blimp"]["agreement"]["predictions"]] == [f"agreement_{n}" for n in range(3)]
    assert found["blimp"]["agreement"]["predictions"][2]["pred"] == "a king"
    assert found["ewok"]["social-relations"]["predictions"][0]["pred"] in (" Ann is first.", " Ann is last.")
    assert [*found["entity_tracking"]] == ["regular_0_ops", "regular_1_ops"]
    assert found["comps"]["wugs_dist_before"]["predictions"][0]["pred"].endswith(". A wug barks.")
    assert {*found["wug_past"]["wug_past"]["predictions"][0]} == {"id", "pred", "prob"}
    words = found["reading"]["reading"]["predictions"]
    scorer = pipeline_of(open_trained(runs / "decoder", device="cpu")).text_scorer("causal")
    texts = ["the old", "the old king"]
    assert [words[0]["pred"], words[1]["prev_pred"]] == pytest.approx(
        [-score for score in scorer.texts(texts[:1] * 2, starts=[3, 3])]
    )
    assert words[0]["prev_pred"] is None
    assert words[1]["pred"] == pytest.approx(-scorer.texts(texts[1:], starts=[7])[0])
    measured(runs / "hybrid", "--babylm", data, "-o", tmp_path / "both.json")
    assert (tmp_path / "both-causal.json").exists()
    assert (tmp_path / "both-mntp.json").exists()


def test_a_set_of_seeds_has_the_mean_and_students_interval(runs: Path, data: Path, tmp_path: Path) -> None:
    each = [
        measured(runs / "seeds" / f"seed-{n}", "--babylm", data)["metrics"]["babylm.reading.self_paced"] for n in (1, 2)
    ]
    found = measured(runs / "seeds", "--babylm", data)
    score = found["result"]["scores"]["causal"]["reading.self_paced"]
    low, high = stats.t.interval(0.95, 1, sum(each) / 2, stats.sem(each))
    assert each[0] != each[1]
    assert (score["value"], score["low"], score["high"]) == pytest.approx((sum(each) / 2, low, high))
    assert found["run"] == str(runs / "seeds")
    equal = _over_runs([babylm_scores.TaskScore("accuracy", 0.5, 0.4, 0.6, 10)] * 2)
    assert (equal["value"], equal["low"], equal["high"]) == (0.5, 0.5, 0.5)
    refused(
        minitf("evaluate", runs / "seeds", "--babylm", data, "-o", tmp_path / "a.json"),
        "predictions are of one model",
        "seed-1",
        exit_code=2,
    )


def test_the_table_says_how_ties_count_and_a_gate_ends_with_8(runs: Path, data: Path) -> None:
    shown = minitf("evaluate", runs / "decoder", "--babylm", data, "--assert", "babylm.blimp>1")
    assert shown.exit_code == 8
    assert "Bootstrap intervals. A tie" in " ".join(shown.stdout.split())
    assert "official" in shown.stdout
    assert "takes the first of equal scores" in shown.stderr
    absent = minitf("evaluate", runs / "decoder", "--babylm", data, "--assert", "babylm.wug_adj>0")
    assert (absent.exit_code, "babylm.wug_adj: not measured" in absent.stderr) == (8, True)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("blimp_filtered/a.jsonl", '{"sentence_good": "a"}', "a.jsonl:1: no sentence_bad"),
        ("ewok_fast/a.jsonl", "{", "a.jsonl:1: not valid JSON"),
        ("ewok_filtered/a.jsonl", '{"Domain": "a", "Context1": "b", "Target1": "c"}', "a.jsonl:1: no Target2"),
        (
            "ewok_filtered/a.jsonl",
            '{"Domain": "a", "Context1": " ", "Target1": "c", "Target2": "d"}',
            "Context1 is empty",
        ),
        ("entity_tracking/a.jsonl", '{"input_prefix": "a", "options": [" b"], "numops": 0}', "at least two texts"),
        ("entity_tracking/a.jsonl", '{"input_prefix": "a", "options": [" b", " c"]}', "a.jsonl:1: 'numops' must be"),
        ("comps/a.jsonl", '{"prefix_acceptable": "a", "prefix_unacceptable": "b"}', "no property_phrase"),
        ("wug_past_tense/a.jsonl", '{"sentences": "a b", "ratio": 0.5}', "with a tab between them"),
        ("wug_past_tense/a.jsonl", '{"sentences": "a\\tb", "ratio": "x"}', "'ratio' must be a number"),
        ("reading/a.csv", "item,word\na,b", "a.csv:1: no column prev_item"),
        ("comps/notes.txt", "a", "has no lines of comps in .jsonl files"),
    ],
)
def test_a_broken_line_is_refused_with_its_place(tmp_path: Path, name: str, line: str, message: str) -> None:
    file = tmp_path / name
    file.parent.mkdir()
    file.write_text(line + "\n")
    with pytest.raises(DataFault, match=re.escape(message)):
        read_babylm(tmp_path)


def test_other_folders_and_options_are_refused(runs: Path, data: Path, tmp_path: Path, classifier: Path) -> None:
    run = runs / "decoder"
    refused(minitf("evaluate", run, "--babylm", tmp_path / "none"), "no such folder", "full_eval", exit_code=4)
    refused(minitf("evaluate", run, "--babylm", data.parent), "has no task of BabyLM", f"name {data}", exit_code=4)
    refused(minitf("evaluate", run, "--babylm", data, "--pairs", "a.jsonl"), "does not combine with", exit_code=2)
    refused(minitf("evaluate", run, "--babylm", data, "--split", "val"), "does not combine with --split", exit_code=2)
    refused(minitf("evaluate", run, "-o", "a.json"), "used without --babylm", exit_code=2)
    refused(minitf("evaluate", run, "--babylm", data, "-o", tmp_path / "a.csv"), "suffix must be .json", exit_code=2)
    refused(minitf("evaluate", run, "--babylm", data, "--score", "word"), "has causal", exit_code=2)
    refused(minitf("evaluate", classifier, "--babylm", data), "gives texts no probability", exit_code=2)
    refused(minitf("evaluate", run, "--assert", "babylm.blimp>0"), "add --babylm DIR", exit_code=2)
    refused(
        minitf("evaluate", run, "--babylm", data, "--assert", "babylm.blimb>0"),
        "did you mean babylm.blimp?",
        exit_code=2,
    )
