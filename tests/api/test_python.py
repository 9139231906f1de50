"""minitf in Python gives what the commands give, with the same words where it refuses."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import QUIET, TINY, evaluated, minitf, results, tiny_model, trained
from tiny_tasks import ODD, THINGS

import mini_tf
from mini_tf.api import training_calls
from mini_tf.api.arguments_as_text import overrides_of
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault

PROMPTS = ["Once", "The fox and the", "x"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=20")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "encoder", "train.steps=5", tiny_model("encoder"))


def printed(*arguments: str | Path) -> list[dict[str, Any]]:
    done = minitf(*arguments)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_texts_are_those_of_the_command(decoder: Path, encoder: Path) -> None:
    run = mini_tf.load(decoder)
    options = ("--max-new-tokens", "12", "--seed", "3", "--num-samples", "2", "--logprobs", "1", "--json")
    theirs = results(minitf("generate", decoder, *PROMPTS, *options).stdout)
    ours = run.generate_results(PROMPTS, max_new_tokens=12, seed=3, num_samples=2, logprobs=1)
    assert ours == theirs
    first = [result["texts"][0] for result in theirs]
    assert run.generate(PROMPTS, max_new_tokens=12, seed=3) == first
    assert run.generate(PROMPTS, max_new_tokens=12, seed=3, num_samples=2) == first
    assert run.generate(PROMPTS[1], max_new_tokens=12, seed=3) == first[1]
    pieces: list[str] = []
    run.generate_results(PROMPTS[:1], max_new_tokens=12, seed=3, streamer=pieces.append)
    assert "".join(pieces) == first[0]
    assert len(pieces) > 1
    masked = "Once [MASK] a time"
    by_line = minitf("generate", encoder, "-i", "-", stdin=f"{masked}\n").stdout
    assert mini_tf.load(encoder).generate(masked) == by_line.removesuffix("\n").replace("\\n", "\n")


def test_a_stop_string_and_a_truncated_prompt_are_those_of_the_command(decoder: Path) -> None:
    run = mini_tf.load(decoder)
    whole = run.generate("Once", greedy=True, max_new_tokens=12)
    assert run.generate("Once", greedy=True, max_new_tokens=12, stop=whole[3]) == whole[: whole.index(whole[3])]
    told = minitf("generate", decoder, "y" * 60, "--max-new-tokens", "1").stderr.strip()
    with pytest.warns(mini_tf.ResultWarning) as caught:
        run.generate("y" * 60, max_new_tokens=1)
    assert [str(one.message) for one in caught] == told.splitlines()
    assert caught[0].filename == __file__


def test_predictions_are_those_of_the_command(classifier: Path, tagger: Path, regressor: Path) -> None:
    texts = [f"a nice {THINGS[0]}", "a dull room number 3", "green"]
    for folder, options, given in (
        (classifier, ("--top", "2", "--threshold", "0.5", "--threshold", "good=0.1"), {"top": 2}),
        (tagger, (), {}),
        (regressor, (), {}),
    ):
        threshold = {"threshold": {"good": 0.1, None: 0.5}} if options else {}
        predictions = mini_tf.load(folder).predict(texts, **given, **threshold)  # type: ignore[call-overload]
        theirs = printed("predict", folder, *texts, *options)
        assert [{"line": n, **one.to_json()} for n, one in enumerate(predictions, 1)] == theirs
    run = mini_tf.load(classifier)
    assert run.predict({"text": texts[0]}) == run.predict(texts[0]) == run.predict([texts[0]])[0]
    assert run.predict('{"a": nice soup').label in {"good", "bad", ODD}  # a text, and no line of JSON


def test_an_embedding_is_what_the_task_head_reads(classifier: Path) -> None:
    run, texts = mini_tf.load(classifier), ["a nice soup", "a dull film number 7", "nice"]
    vectors = run.embed(texts)
    assert vectors.shape == (3, run.model.d_model)
    logits = run.model.head(torch.from_numpy(vectors)).softmax(-1)
    for row, prediction in zip(logits.tolist(), run.predict(texts), strict=True):
        assert row == pytest.approx([*prediction.scores.values()], abs=1e-5)
    np.testing.assert_allclose(run.embed(texts[0]), vectors[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(run.embed(texts, normalize=True), axis=1), 1, atol=1e-6)


def test_an_embedding_without_a_task_is_the_mean_of_the_hidden_states(encoder: Path) -> None:
    run = mini_tf.load(encoder)
    separator = run.tokenizer.vocabulary.separator
    ids = torch.tensor([[separator, *run.tokenizer.encode("Once upon").tolist()]])
    with torch.no_grad():
        hidden = run.model(Tokens(ids)).y
    np.testing.assert_allclose(run.embed(["Once upon", "a longer text"])[0], hidden[0].mean(0).numpy(), atol=1e-5)
    long = "Once upon a time there was a king " * 40
    ids = torch.tensor([[separator, *run.tokenizer.encode(long).tolist()]])[:, : run.model.context]
    with torch.no_grad(), pytest.warns(mini_tf.ResultWarning, match="truncated"):
        np.testing.assert_allclose(run.embed(long), run.model(Tokens(ids)).y[0].mean(0).numpy(), atol=1e-5)


def test_attention_is_that_of_the_command_and_has_a_picture(decoder: Path) -> None:
    run = mini_tf.load(run=decoder)
    maps = run.attention("Once upon a time", layer=1)
    weights = maps.weights()
    [sample] = printed("inspect", "attention", decoder, "Once upon a time", "--layer", "1", "--full", "--json")[0][
        "result"
    ]["samples"]
    assert maps.tokens == sample["tokens"]
    np.testing.assert_allclose(weights[0], [head["matrix"] for head in sample["heads"]], atol=1e-4)
    assert weights.shape == (1, 2, len(maps.tokens), len(maps.tokens))
    assert (maps.source_tokens, maps.title) == (None, f"run decoder, step {run.trained.step}")
    asked = run.attention("Once upon a time", layer=0, head=1, query="upon")
    assert [(head.index.layer, head.index.head) for head in asked.heads] == [(0, 1)]
    assert asked.sample.query is not None
    assert asked.sample.query.text == "upon"
    assert maps._repr_png_().startswith(b"\x89PNG")
    assert b"<svg" in maps.picture("svg")
    shown = minitf("inspect", "attention", decoder, "Once upon a time", "--layer", "1", "--describe").stdout
    assert [line.split(":")[0] for line in maps.describe()] == [line.split(":")[0] for line in shown.splitlines()]


def test_metrics_are_those_of_the_command(
    decoder: Path, classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (decoder, classifier):
        assert mini_tf.load(folder).evaluate() == evaluated(folder)
    file = tmp_path / "rows.jsonl"
    texts = [f"a nice {thing}" for thing in THINGS] + ["a nice" * 100]
    file.write_text("".join(json.dumps({"words": text, "is": "good"}) + "\n" for text in texts))
    fields = {"text": "words", "label": "is"}
    with pytest.warns(mini_tf.ResultWarning, match="1 of .* are truncated"):
        ours = mini_tf.load(classifier).evaluate(file, fields=fields)
    assert capsys.readouterr() == ("", "")
    assert ours == evaluated(classifier, "--data", file, "--fields", json.dumps(fields))
    assert ours["targets"] == len(texts)


def test_what_is_refused_has_the_words_of_the_command(
    decoder: Path, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, task = mini_tf.load(decoder), mini_tf.load(classifier)
    for call, line in (
        (lambda: mini_tf.load("nothing"), ("evaluate", "nothing")),
        (lambda: run.generate("a", top_p=7.5), ("generate", decoder, "a", "--top-p", "7.5")),
        (lambda: run.generate("a", num_beams=3), ("generate", decoder, "a", "--num-beams", "3")),
        (lambda: run.generate("a", greedy=True, top_k=3), ("generate", decoder, "a", "--greedy", "--top-k", "3")),
        (lambda: task.generate("a"), ("generate", classifier, "a")),
        (lambda: run.predict("a"), ("predict", decoder, "a")),
        (lambda: task.predict("a", threshold={"god": 0.5}), ("predict", classifier, "a", "--threshold", "god=0.5")),
        (lambda: run.attention("a b", layer=9), ("inspect", "attention", decoder, "a b", "--layer", "9")),
        (lambda: run.evaluate(split="train", data="x"), ("evaluate", decoder, "--split", "train", "--data", "x")),
        (lambda: mini_tf.pretrain(TINY, model={"widht": 3}), ("pretrain", TINY, "model.widht=3")),
        (lambda: mini_tf.finetune(), ("finetune",)),
    ):
        with pytest.raises(mini_tf.MinitfError) as caught:
            call()
        done = minitf(*line)
        assert ("".join(f"{line}\n" for line in caught.value.lines), caught.value.exit_code) == (
            done.stderr,
            done.exit_code,
        )


def test_arguments_of_another_kind_are_refused_and_not_made_text(
    decoder: Path, encoder: Path, classifier: Path
) -> None:
    run, task = mini_tf.load(decoder), mini_tf.load(classifier)
    many = "must be a text or a dict, or a list of them, got"
    for call, words in (
        (lambda: mini_tf.load(None), "run: must be a name or a path, got NoneType"),  # type: ignore[arg-type]
        (lambda: run.generate(5), f"prompts: {many} int"),
        (lambda: run.generate(b"a"), f"prompts: {many} bytes"),
        (lambda: run.generate(["a", None]), "prompts: must be a text or a dict, got NoneType as entry 2"),
        (lambda: run.generate({"messages": {1}}), "a mapping with texts and numbers is needed"),
        (lambda: task.predict(5), f"texts: {many} int"),
        (lambda: task.predict([5]), "texts: must be a text or a dict, got int as entry 1"),
        (lambda: task.embed(None), "texts: must be a text, or a list of them, got NoneType"),
        (lambda: mini_tf.load(encoder).embed([{}]), "texts: must be a text, got dict as entry 1"),
        (lambda: run.attention(["a"]), "text and target: each must be a text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageFault, match=re.escape(words)):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": 3}, "--max-tokens: no such option; did you mean --max-new-tokens?"),
        ({"seed": -1}, "--seed: must be from 0 to"),
        ({"num_samples": "3"}, "--num-samples: must be an integer, got '3'"),
        ({"temperature": "hot"}, "--temperature: "),
    ],
)
def test_an_option_that_no_command_line_can_have_is_refused(options: dict[str, Any], words: str, decoder: Path) -> None:
    with pytest.raises(UsageFault) as caught:
        mini_tf.load(decoder).generate("a", **options)
    assert "\n".join(caught.value.lines).startswith(words)


def test_settings_are_written_as_on_the_command_line() -> None:
    settings = {"train": {"steps": 3}, "objective": "masked", "model.attention": {"kind": "window"}, "seed": None}
    assert [*overrides_of(settings)] == [
        *("train.steps=3", "objective=masked", 'model.attention={"kind": "window"}', "seed=null")
    ]


def test_a_call_trains_the_run_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained(tmp_path / "run", "train={steps: 3, batch_size: 4}")
    settings = {"train": {"steps": 3, "batch_size": 4}, "log.samples": 0, **dict(one.split("=") for one in QUIET)}
    before = (folder / "metrics.jsonl").read_bytes()
    assert mini_tf.pretrain(TINY, out_dir=folder, **settings).folder == folder
    assert f"already complete: {folder} (step 3)" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    run = mini_tf.pretrain(TINY, name="again", progress=False, **settings)
    assert (tmp_path / "outputs" / "again" / "metrics.jsonl").read_bytes() == before
    assert run.metrics["val.loss"] == mini_tf.load(folder).metrics["val.loss"]
    assert repr(run).startswith("LoadedRun(again: decoder, next_token, ")
    assert capsys.readouterr() == ("", "")


def test_an_interrupted_call_saves_and_the_same_call_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, line: str) -> None:
        if line.startswith("step 1/"):
            signal.raise_signal(signal.SIGINT)

    def call() -> mini_tf.LoadedRun:
        return mini_tf.pretrain(TINY, out_dir=tmp_path / "run", train={"steps": 4}, log={"samples": 0})

    with monkeypatch.context() as patch:
        patch.setattr(training_calls._Progress, "say", interrupt)
        with pytest.raises(KeyboardInterrupt, match="is saved; the same call continues it"):
            call()
    assert call().trained.step == 4
