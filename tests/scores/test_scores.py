"""BLEU and chrF are sacrebleu's own, to the digit, and what the formulas of the papers give by hand; nothing else
happens.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sacrebleu
from commands import ROOT

from mini_tf.scores import PACKAGES, available, missing, missing_warning, require, version
from mini_tf.scores.text_scores import corpus_scores, signatures, text_scores, zero_notes
from mini_tf.system.errors import Unavailable

GERMAN = [
    "Ein Mann schläft in einem grünen Raum auf einem Sofa.",
    "Zwei Hunde spielen im Schnee, und ein Kind schaut ihnen zu.",
    'Er sagte: "Das kostet 1.000,50 Euro (ohne Steuer)!"',
    "",
    "Ein   Junge mit Kopfhörern — sitzt auf den Schultern einer Frau. ",
]
REFERENCES = [
    "Ein Mann, der in einem grünen Raum auf einem Sofa schläft.",
    "Zwei Hunde spielen im Schnee und ein kleines Kind schaut zu.",
    'Er sagte: "Das kostet 1.000,50 Euro (mit Steuer)!"',
    "Nichts.",
    "Ein Junge mit Kopfhörern sitzt auf den Schultern einer Frau.",
]


def scored(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, float]:
    """Texts with one reference each."""
    return corpus_scores(ours, [[one] for one in theirs])


def grams(items: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]


def shared(ours: Sequence[tuple[str, ...]], theirs: Sequence[tuple[str, ...]]) -> int:
    """How many of ours stand among theirs, none counted more often than it stands there."""
    return sum(min(list(ours).count(gram), list(theirs).count(gram)) for gram in set(ours))


def bleu(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Papineni et al. 2002 on text whose words and stops stand between blanks; the k-th precision of 0 is 1 / (2^k
    total).
    """
    log_precision, nothing = 0.0, 0
    for n in (1, 2, 3, 4):
        total = sum(len(grams(one.split(), n)) for one in ours)
        right: float = sum(shared(grams(a.split(), n), grams(b.split(), n)) for a, b in zip(ours, theirs, strict=True))
        if right == 0:
            nothing += 1
            right = 0.5**nothing
        log_precision += math.log(right / total) / 4
    length, wanted = (len(" ".join(texts).split()) for texts in (ours, theirs))
    return 100 * min(1.0, math.exp(1 - wanted / length)) * math.exp(log_precision)


def chrf(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Popović 2015: precision and recall of character n-grams up to 6 without blanks, each averaged over n, recall
    twice as heavy.
    """
    precisions, recalls = [], []
    for n in range(1, 7):
        pairs = [
            (grams(a.replace(" ", ""), n), grams(b.replace(" ", ""), n)) for a, b in zip(ours, theirs, strict=True)
        ]
        right = sum(shared(a, b) for a, b in pairs)
        precisions.append(right / sum(len(a) for a, _ in pairs))
        recalls.append(right / sum(len(b) for _, b in pairs))
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


CASES = {
    "shorter than its reference": (["the cat sat on the mat ."], ["the cat sat down on the old mat ."]),
    "longer than its reference": (["the the the cat sat on the mat today ."], ["the cat sat on the mat ."]),
    "without a common 4-gram": (["a man sleeps on green sofas"], ["one man sleeps on the green sofa"]),
    "two sentences": (
        ["a dog plays in the snow", "the red house stands here"],
        ["a dog plays in deep snow", "the red house stood here"],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by_hand", [bleu, chrf], ids=["bleu", "chrf"])
def test_scores_are_what_the_formulas_give(name: str, by_hand: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    ours, theirs = CASES[name]
    score = scored(ours, theirs)[by_hand.__name__]
    assert 0 < score < 100
    assert score == pytest.approx(by_hand(ours, theirs), abs=1e-9)


def test_stops_are_words_of_their_own_and_blanks_do_not_count() -> None:
    attached, apart = ["a man sleeps,  he snores. "], ["a man sleeps , he snores ."]
    reference = ["a man sleeps, she snores."]
    expected = bleu(apart, ["a man sleeps , she snores ."])
    assert scored(attached, reference)["bleu"] == pytest.approx(expected, abs=1e-9)
    assert scored(attached, reference)["bleu"] == scored(apart, reference)["bleu"]


def test_scores_and_signatures_are_sacrebleus_own() -> None:
    scores, names = scored(GERMAN, REFERENCES), signatures([[one] for one in REFERENCES])
    for name, metric in (("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())):
        assert scores[name] == pytest.approx(metric.corpus_score(GERMAN, [REFERENCES]).score, abs=1e-9)
        assert names[name] == metric.get_signature().format()
    assert names["bleu"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


@pytest.mark.parametrize(
    ("tokenizer", "ours", "theirs"),
    [
        ("zh", ["猫坐在垫子上。", "我们用GPU 3号训练"], ["猫坐在一个垫子上。", "我们用GPU 4号训练模型"]),
        ("char", ["ネコはマットの上に座った", "今日は天気がいい"], ["ネコがマットの上に座った", "今日は天気が悪い"]),
        ("char", ["แมวนั่งบนเสื่อ"], ["แมวนอนบนเสื่อ"]),
        ("13a", ["Кошка сидела на старой крыше."], ["Кошка сидела на новой крыше, и спала."]),
        ("13a", ["고양이가 매트 위에 앉아 있다"], ["고양이가 매트 위에 조용히 앉아 있다"]),
        ("13a", ["the word 猫猫猫猫猫 means a small cat"], ["the word 猫猫猫猫猫 means one small cat"]),
    ],
)
def test_bleu_counts_the_words_of_the_references_script(tokenizer: str, ours: list[str], theirs: list[str]) -> None:
    """In Chinese a sentence without spaces would be one word, and nothing but an equal one would count."""
    scores = scored(ours, theirs)
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(ours, [theirs], tokenize=tokenizer).score, abs=1e-9)
    assert 0 < scores["bleu"] < 100
    assert scored(theirs, theirs)["bleu"] == pytest.approx(100)
    assert f"tok:{tokenizer}|" in signatures([[one] for one in theirs])["bleu"]


def test_an_exact_match_is_equal_to_the_letter() -> None:
    theirs = ["Ein Mann.", "Ein Mann.", "Ein Mann.", "Ein Mann."]
    scores = scored(["Ein Mann.", "ein Mann.", "Ein Mann .", "Ein Mann."], theirs)
    assert scores["exact_match"] == 0.5
    assert scored(theirs, theirs)["exact_match"] == 1.0
    assert scored(theirs, theirs)["chrf"] == pytest.approx(100)
    assert scored(["zzz"], ["Ein Mann."]) == {"bleu": 0.0, "chrf": 0.0, "exact_match": 0.0}


def test_case_counts_and_so_does_which_sentence_stands_where() -> None:
    same = scored(REFERENCES, REFERENCES)
    assert same["bleu"] == pytest.approx(100)
    for other in ([one.lower() for one in REFERENCES], REFERENCES[::-1]):
        scores = scored(other, REFERENCES)
        assert all(scores[name] < same[name] for name in same)


def test_text_that_looks_tokenised_is_scored_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = ["a man sleeps here ."] * 150, ["a man sleeps there ."] * 150
    ours_alone = scored(ours, theirs)
    assert capfd.readouterr() == ("", "")
    assert ours_alone["bleu"] == sacrebleu.corpus_bleu(ours, [theirs]).score
    assert "tokenized period" in capfd.readouterr().err  # what sacrebleu says unless told otherwise


def test_scoring_starts_no_process_opens_no_connection_and_leaves_nothing(tmp_path: Path) -> None:
    """Not even a handler of logs. A library under sacrebleu asks Python for the folder of temporary files, which Python
    tries out by a file that it removes.
    """
    code = """
import json, logging, sys
sys.path[:0] = ["tests", "."]
from audited import Record
seen = Record()
sys.addaudithook(seen)
seen.running = True
from mini_tf.scores.text_scores import corpus_scores, signatures, summary_scores
corpus_scores(["a b ."] * 200, [["a c ."]] * 200), signatures([["a"]]), summary_scores(["a"], [["a"]])
seen.running = False
imported = ["torch" in sys.modules, "sacrebleu" in seen.imports]
print(json.dumps([seen.processes + seen.network + logging.root.handlers, sorted(seen.changed), *imported]))
"""
    line = [sys.executable, "-B", "-W", "error", "-c", code]
    environment = os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "SACREBLEU": str(tmp_path)}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600)
    outside, changed, with_torch, imported = json.loads(done.stdout)
    assert (outside, with_torch, imported, done.stderr) == ([], False, True, "")
    assert {Path(path).parent for path in changed} <= {tmp_path.resolve()}
    assert list(tmp_path.iterdir()) == []


def test_without_sacrebleu_it_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available("sacrebleu")
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    assert not available("sacrebleu")
    for asked in (lambda: require("sacrebleu"), lambda: signatures([["a"]]), lambda: scored(["a"], ["a"])):
        with pytest.raises(Unavailable, match="need sacrebleu") as refusal:
            asked()
        assert (refusal.value.exit_code, refusal.value.hint) == (9, "pip install 'minitf[scores]'")


def test_of_several_references_bleu_and_chrf_are_sacrebleus_own() -> None:
    third = [f"{one} Und mehr." for one in REFERENCES]
    both = [list(pair) for pair in zip(REFERENCES, GERMAN[::-1], third, strict=True)]
    scores = corpus_scores(GERMAN, both)
    streams = [REFERENCES, GERMAN[::-1], third]
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(GERMAN, streams).score, abs=1e-9)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(GERMAN, streams).score, abs=1e-9)
    assert "nrefs:3" in signatures(both)["bleu"]


def test_a_text_with_fewer_references_than_another_is_held_to_those_it_has() -> None:
    """What is repeated adds no n-gram and no length; an empty line in its place would be a reference of no words."""
    ours, theirs = GERMAN[:2], [[REFERENCES[0]], [REFERENCES[1], "Hunde im Schnee"]]
    assert corpus_scores(ours, theirs) == corpus_scores(ours, [[REFERENCES[0], REFERENCES[0]], theirs[1]])
    long = "a b c d e f g h i"
    assert corpus_scores(["a b c d"], [[long, ""]])["bleu"] > corpus_scores(["a b c d"], [[long]])["bleu"]
    assert "nrefs:var" in signatures(theirs)["chrf"]


def test_an_exact_match_is_equal_to_any_of_its_references() -> None:
    assert corpus_scores(["a", "b", "c"], [["x", "a"], ["b"], ["d", "e"]])["exact_match"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("package", "module"), list(zip(PACKAGES, ("rouge_score", "sacrebleu", "sklearn", "seqeval"), strict=True))
)
def test_a_missing_package_is_named_with_its_figures(
    package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (missing(*PACKAGES), missing_warning(*PACKAGES)) == ([], "")
    require(*PACKAGES)
    monkeypatch.setitem(sys.modules, module, None)
    assert missing(*PACKAGES) == [package]
    assert version(package) is None
    assert (
        missing_warning(*PACKAGES)
        == f"{package} is not installed, so there is no {PACKAGES[package]}: pip install 'minitf[scores]'"
    )
    figures = {"rouge-score": {"rouge1", "rouge2", "rougeL"}, "sacrebleu": {"bleu", "chrf", "exact_match"}}
    assert text_scores([("a", ["a"])]).keys() == set().union(*(figures[name] for name in figures if name != package))
    with pytest.raises(Unavailable, match=f"{PACKAGES[package]} needs? {package}$") as refusal:
        require(*PACKAGES)
    assert (refusal.value.exit_code, refusal.value.hint) == (9, "pip install 'minitf[scores]'")


def test_versions_are_those_the_packages_tell() -> None:
    assert version("sacrebleu") == sacrebleu.__version__
    assert version("seqeval") == ""
    with pytest.raises(ValueError, match="must be one of rouge-score, sacrebleu, scikit-learn, seqeval"):
        version("antigravity")


def test_scores_that_are_zero_by_definition_say_why() -> None:
    """sacrebleu's corpus BLEU has no effective order, and ROUGE has words of letters and digits."""
    short = [("a cat sat", ["a cat sat"]), ("so", ["so"])]
    scores = text_scores(short)
    assert (scores["bleu"], scores["exact_match"], scores["rouge1"]) == (0.0, 1.0, 1.0)
    assert zero_notes(short) == ["bleu is 0, since no generated text has 4 words: it multiplies 1- to 4-grams"]
    assert zero_notes([*short, ("it is a cat", ["it is a cat"])]) == []
    emoji = [("\U0001f600", ["\U0001f600", "!"]), ("a cat sat there", ["a cat", "\U0001f600"])]
    assert text_scores(emoji)["rouge1"] < 0.5
    assert zero_notes(emoji) == ["rouge is 0 for 1 of 2 texts, whose references have no letters or digits"]
