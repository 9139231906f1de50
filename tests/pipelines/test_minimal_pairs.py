"""`minitf evaluate --pairs`: scores of sentences against sums written out, and the command's figures and refusals."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import minitf, refused, tiny_model, trained
from scipy import stats

from mini_tf.data.formats.babylm_files import read_pairs
from mini_tf.generation import likelihoods
from mini_tf.generation.prompt_ids import Affixes
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import pipeline_of
from mini_tf.scores.intervals import pair_scores
from mini_tf.system.errors import DataFault
from mini_tf.trained.opening import Trained, open_trained

BPE = "tokenizer={kind: bpe, vocab_size: 300}"
TEXTS = ["the king was old", "a", "no sailor ever saw the old king sleep", "the king were old", "a"]
PAIRS = [("the king was old", "the king were old"), ("a king sleeps", "a king sleep"), ("an old man", "an old man")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """decoder: of documents that begin with a separator; tail: of running text, without one; encoder."""
    folder = tmp_path_factory.mktemp("pairs") / "outputs"
    few = ("train.steps=3", BPE, "model.init_std=0.3")
    trained(folder / "decoder", *few, "data.split=10%")
    trained(folder / "tail", *few, "data.split=tail 10%")
    trained(folder / "encoder", "train.steps=3", BPE, tiny_model("encoder"), "model.init_std=0.3", "data.split=10%")
    return folder


def lines(*pairs: tuple[str, str], **more: str) -> str:
    return "".join(json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n" for good, bad in pairs)


def scored(opened: Trained, texts: Sequence[str], kind: str | None = None, places: Sequence[str] = ()) -> list[float]:
    """By the default of the model's pipeline, or a kind."""
    kind, _ = opened.recipe.objective.text_score(kind, "", "")
    return pipeline_of(opened).text_scorer(kind).texts(texts, places)


def measured(run: Path, *words: str | Path) -> dict[str, Any]:
    done = minitf("evaluate", run, *words, "--json")
    assert done.exit_code == 0, done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    return envelope


@pytest.mark.parametrize("name", ["decoder", "tail"])
def test_a_decoders_score_is_the_sum_over_the_tokens_after_the_start(
    runs: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihoods, "BATCH_TOKENS", 40)  # several batches of several rows
    monkeypatch.setattr(likelihoods, "LOGITS", 1000)
    opened = open_trained(runs / name, device="cpu")
    separator = opened.tokenizer.vocabulary.separator
    assert separator is not None
    start = [separator] if name == "decoder" else []
    expected = []
    for text in TEXTS:
        ids = [*start, *opened.tokenizer.encode(text).tolist()]
        with torch.no_grad():
            log_p = opened.model.logits(opened.model(Tokens(torch.tensor([ids]))).y)[0].log_softmax(-1)
        expected.append(sum(float(log_p[i - 1, ids[i]]) for i in range(1, len(ids))))
    assert scored(opened, TEXTS) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", ["word", "token"])
def test_an_encoders_score_is_the_sum_over_masked_tokens(
    runs: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`word`: with the later tokens of the same word, by the spaces of the text; `token`: alone."""
    monkeypatch.setattr(likelihoods, "BATCH_TOKENS", 40)
    opened = open_trained(runs / "encoder", device="cpu")
    vocabulary = opened.tokenizer.vocabulary
    assert vocabulary.separator is not None
    expected = []
    for text in TEXTS:
        tokens, spans = opened.tokenizer.spans(text)
        word_of = [text[: max(first, last - 1)].lstrip().count(" ") for first, last in spans]
        total = 0.0
        for i, id in enumerate(tokens.tolist()):
            hidden = [j == i or (kind == "word" and j > i and word_of[j] == word_of[i]) for j in range(len(tokens))]
            ids = [vocabulary.separator, *np.where(hidden, vocabulary.mask, tokens).tolist()]
            with torch.no_grad():
                log_p = opened.model.logits(opened.model(Tokens(torch.tensor([ids]))).y)[0, i + 1].log_softmax(-1)
            total += float(log_p[id])
        expected.append(total)
    assert scored(opened, TEXTS, kind) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    if kind == "word":
        assert scored(opened, TEXTS) != pytest.approx(scored(opened, TEXTS, "token"))


@pytest.mark.parametrize(("name", "longest"), [("decoder", 1), ("tail", 1), ("encoder", 0)])
def test_a_text_is_scored_up_to_the_context_and_refused_beyond(runs: Path, name: str, longest: int) -> None:
    """A decoder does not read the last token."""
    opened = open_trained(runs / name, device="cpu")
    n = opened.model.context + longest - (name != "tail")  # of the text, whose characters are a token each
    [score] = scored(opened, ["~" * n])
    assert score < 0
    with pytest.raises(
        DataFault, match=f"x.txt:1: a text of .* tokens, more than the model's context of {opened.model.context}"
    ):
        scored(opened, ["~" * (n + 1)], places=["x.txt:1"])


def test_tokens_around_a_text_are_read_and_not_scored(runs: Path) -> None:
    opened = open_trained(runs / "decoder", device="cpu")
    around, ids = ([5, 6], [7]), opened.tokenizer.encode(TEXTS[0]).tolist()
    with torch.no_grad():
        log_p = opened.model.logits(opened.model(Tokens(torch.tensor([[5, 6, *ids]]))).y)[0].log_softmax(-1)
    expected = sum(float(log_p[i + 1, id]) for i, id in enumerate(ids))
    [score] = likelihoods.TextScorer(opened.model, opened.tokenizer, Affixes(*around), "causal").texts([TEXTS[0]])
    assert score == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("decoder", "causal"), ("encoder", "token"), ("encoder", "word")])
@pytest.mark.parametrize("ahead", [True, False])
def test_only_tokens_that_end_behind_the_start_are_scored(runs: Path, name: str, kind: str, ahead: bool) -> None:
    """Not ahead: all tokens behind a masked one are masked, too."""
    opened = open_trained(runs / name, device="cpu")
    text, start, vocabulary = "no sailor ever saw the kings sleep", 25, opened.tokenizer.vocabulary
    ids, spans = opened.tokenizer.spans(text)
    words = [text[:first].count(" ") + text[first:last].startswith(" ") for first, last in spans]
    expected = 0.0
    for i in (i for i, (_, last) in enumerate(spans) if last > start):
        hidden = [
            j == i or (j > i and (not ahead or (kind == "word" and words[j] == words[i]))) for j in range(len(ids))
        ]
        shown = ids if name == "decoder" else np.where(hidden, vocabulary.mask, ids)
        with torch.no_grad():
            y = opened.model(Tokens(torch.tensor([[vocabulary.separator, *shown.tolist()]]))).y
            expected += float(opened.model.logits(y)[0, i + (name == "encoder")].log_softmax(-1)[ids[i]])
    assert text[start - 2 : start] == "ki"
    [score] = pipeline_of(opened).text_scorer(kind).texts([text], starts=[start], ahead=ahead)
    assert score == pytest.approx(expected, rel=1e-5)


def test_the_end_of_a_long_text_is_scored_with_a_context_before_it(runs: Path) -> None:
    opened = open_trained(runs / "decoder", device="cpu")
    scorer, context, beginning = pipeline_of(opened).text_scorer("causal"), opened.model.context, "the old sailor " * 20
    [score] = scorer.texts([beginning + "sleeps"], starts=[len(beginning)], cut=True)
    ids = opened.tokenizer.encode(beginning + "sleeps")
    n = sum(last > len(beginning) for _, last in opened.tokenizer.spans(beginning + "sleeps")[1])
    with torch.no_grad():
        y = opened.model(Tokens(torch.tensor([ids[-context - 1 : -1].tolist()]))).y
        log_p = opened.model.logits(y)[0].log_softmax(-1)
    assert score == pytest.approx(sum(float(log_p[-i, ids[-i]]) for i in range(1, n + 1)), rel=1e-5)
    parts = [
        scorer.texts([start + " sleeps" * 99], starts=[len(start)], cut=True) for start in (beginning, "a" + beginning)
    ]
    assert parts[0] == pytest.approx(parts[1], rel=1e-5)  # longer than a context, with half a context before it


def test_accuracy_counts_ties_half_and_has_wilsons_interval() -> None:
    scores = pair_scores([-1.0, -2.0, -3.0, -1.0], [-2.0, -1.0, -3.0, -5.0])
    assert (scores.accuracy, scores.ties, scores.n, scores.difference) == (2.5 / 4, 1, 4, 1.0)
    whole = pair_scores([1.0] * 7 + [0.0] * 3, [0.0] * 7 + [1.0] * 3)
    interval = stats.binomtest(7, 10).proportion_ci(0.95, method="wilson")
    assert (whole.low, whole.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_the_command_prints_accuracy_in_all_and_by_paradigm(runs: Path, name: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        lines(*PAIRS[:2], UID="agreement", linguistics_term="verbs")
        + lines(PAIRS[2], UID="equal", linguistics_term="verbs")
    )
    found = measured(
        runs / name, "--pairs", file, "--assert", "pairs.accuracy>=0.1", "--assert", "pairs.accuracy.equal==0.5"
    )
    scores = scored(open_trained(runs / name, device="cpu"), [text for pair in PAIRS for text in pair])
    right = [scores[2 * n] > scores[2 * n + 1] for n in range(2)]
    assert found["metrics"]["pairs.accuracy"] == (sum(right) + 0.5) / 3
    assert found["metrics"]["pairs.n"] == 3
    assert found["metrics"]["pairs.accuracy.agreement"] == sum(right) / 2
    assert found["metrics"]["pairs.difference"] == pytest.approx((sum(scores[::2]) - sum(scores[1::2])) / 3)
    assert found["result"]["groups"]["linguistics_term"]["verbs"]["n"] == 3
    assert found["result"]["ties"] == 1
    shown = minitf("evaluate", runs / name, "--pairs", tmp_path / "*.jsonl", "--assert", "pairs.accuracy>1")
    assert shown.exit_code == 8
    assert "ties (1) count half" in shown.stdout
    assert "agreement" in shown.stdout


def test_files_are_joined_and_names_of_paradigms_are_optional(runs: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.tsv"
    one.write_text(lines(PAIRS[0]) + "\n")
    other.write_text("sentence_good\tsentence_bad\n" + "\t".join(PAIRS[1]) + "\n")
    found = measured(runs / "decoder", "--pairs", one, "--pairs", other)
    assert found["metrics"]["pairs.n"] == 2
    assert found["result"]["groups"] == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no pairs"),
        ("no json\n", "pairs.jsonl:1: not valid JSON"),
        (lines(PAIRS[0]) + '{"sentence_good": "a king"}\n', "pairs.jsonl:2: no sentence_bad"),
        ('{"sentence_good": "a", "sentence_bad": 3}\n', "pairs.jsonl:1: sentence_bad must be a sentence, not '3'"),
        ('{"sentence_good": " ", "sentence_bad": "a"}\n', "pairs.jsonl:1: sentence_good must be a sentence"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(text)
    with pytest.raises(DataFault, match=re.escape(message)):
        read_pairs([str(file)])


def test_other_files_options_and_models_are_refused(runs: Path, tmp_path: Path, classifier: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(lines(*PAIRS))
    (tmp_path / "pairs.txt").write_text(lines(*PAIRS))
    refused(minitf("evaluate", runs / "tail", "--pairs", tmp_path / "pairs.txt"), "with the suffix .jsonl", exit_code=4)
    refused(minitf("evaluate", runs / "tail", "--pairs", tmp_path / "none.jsonl"), "no such file", exit_code=4)
    (long := tmp_path / "long.jsonl").write_text(lines(PAIRS[0], ("king " * 60, "a")))
    refused(minitf("evaluate", runs / "tail", "--pairs", long), "long.jsonl:2: a text of ", exit_code=4)
    for options in (["--data", "x.txt"], ["--split", "val"], ["--confusion", "c.png"]):
        refused(
            minitf("evaluate", runs / "tail", "--pairs", file, *options),
            "--pairs does not combine with",
            options[0],
            exit_code=2,
        )
    refused(minitf("evaluate", runs / "tail", "--score", "word"), "used without --pairs", exit_code=2)
    refused(minitf("evaluate", runs / "tail", "--pairs", file, "--score", "word"), "has causal", exit_code=2)
    refused(
        minitf("evaluate", classifier, "--pairs", file),
        "the objective classify, which gives texts no probability",
        "masked, next_token, prefix",
        exit_code=2,
    )
    refused(minitf("evaluate", runs / "tail", "--pairs", file, "--assert", "loss<1"), "pairs.accuracy.UID", exit_code=2)
    refused(minitf("evaluate", runs / "tail", "--assert", "pairs.accuracy>0.5"), "add --pairs FILE.jsonl", exit_code=2)
