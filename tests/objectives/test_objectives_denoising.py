"""Denoising: sources and targets against forms written by hand, documents apart, limits, and whole runs that are shown,
prompted and fine-tuned.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import TINY, minitf, refused, tiny_model, trained
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.generation.translation import Infiller
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.noises import NoisyText
from mini_tf.objectives import Objective
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.metrics import metrics_of
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import DataFault
from mini_tf.testing.tiny.objectives import vocabulary_for
from mini_tf.trained.opening import open_trained

SEP, MASK, FIRST_SENTINEL = 2, 3, 40
V = vocabulary_for(20)
BART = {"noise": ({"kind": "permute_sentences"}, {"kind": "infill", "rate": 0.4})}
T5 = {"noise": {"kind": "spans", "rate": 0.3}, "target": "spans", "sentinels": 20}


def settings(**given: Any) -> Any:
    return settings_of("objectives", "denoising")(**given)


def denoising(**given: Any) -> Objective:
    objective: Objective = settings(**given).build(V)
    return objective


def rows(n: int = 4, length: int = 30, segments: np.ndarray | None = None) -> Rows:
    draw = np.random.default_rng(0)
    ids = draw.integers(4, 40, (n, length))
    return Rows(ids, np.arange(n, dtype=np.uint64), segments, sentence_starts=draw.random((n, length)) < 0.2)


def sources(batch: Batch) -> list[list[int]]:
    assert batch.source is not None
    given = batch.source.token_positions
    real = torch.ones_like(batch.source.ids) if given is None or given.segments is None else given.segments
    return [ids[one != 0].tolist() for ids, one in zip(batch.source.ids, real, strict=True)]


def targets(batch: Batch) -> list[list[int]]:
    """The labels of each row."""
    n = batch.inputs.ids.numel()
    found = torch.full((n,), -1)
    found[torch.arange(n) if batch.target_positions is None else batch.target_positions] = batch.labels
    return [[id for id in row if id >= 0] for row in found.view(batch.inputs.ids.shape).tolist()]


def inputs(batch: Batch) -> list[list[int]]:
    given = batch.inputs.token_positions
    real = torch.ones_like(batch.inputs.ids) if given is None or given.segments is None else given.segments
    return [ids[one != 0].tolist() for ids, one in zip(batch.inputs.ids, real, strict=True)]


@pytest.mark.parametrize("kind", ["mask", "delete", "infill", "permute_sentences", "rotate", "spans"])
def test_noise_at_rate_0_is_the_identity(kind: str) -> None:
    given = rows()
    batch = denoising(noise={"kind": kind, "rate": 0.0}).prepare(given)
    closed = [[*row, SEP] for row in given.ids.tolist()]
    assert sources(batch) == targets(batch) == closed
    assert inputs(batch) == [[SEP, *row] for row in given.ids.tolist()]
    assert batch.source is not None
    assert batch.source.token_positions is None
    assert batch.target_positions is None


def test_the_target_is_the_whole_text_and_the_source_has_a_mask_for_each_span() -> None:
    given = rows()
    batch = denoising(**BART).prepare(given)
    assert targets(batch) == [[*row, SEP] for row in given.ids.tolist()]
    for source, row in zip(sources(batch), given.ids.tolist(), strict=True):
        kept = [id for id in source[:-1] if id != MASK]
        assert source[-1] == SEP
        assert MASK in source
        assert len(kept) == len(row) - round(0.4 * len(row))
        assert all(kept.count(id) <= row.count(id) for id in kept)
    assert batch.counts == {"denoising": 124, "tokens": 124, "penalty": 124}


def test_the_opening_separator_of_a_text_is_replaced_by_the_closing_one() -> None:
    given = rows()
    given.ids[:, 0] = SEP
    batch = denoising(noise={"kind": "rotate"}).prepare(given)
    assert targets(batch) == [[*row[1:], SEP] for row in given.ids.tolist()]
    assert inputs(batch) == [[SEP, *row[1:]] for row in given.ids.tolist()]
    assert [sorted(source) for source in sources(batch)] == [sorted([*row[1:], SEP]) for row in given.ids.tolist()]


def test_a_target_is_opened_by_the_beginning_token_of_the_vocabulary() -> None:
    """Of each document; without one, as in the other tests, by the separator."""
    given = rows(segments=np.repeat([[1] * 12 + [2] * 18], 4, axis=0))
    given.ids[given.ids == 39] = 38
    begin = settings(noise={"kind": "mask"}).build(replace(V, begin=39)).prepare(given)
    assert inputs(begin) == [[39, *row[:12], 39, *row[12:]] for row in given.ids.tolist()]
    assert targets(begin) == [[*row[:12], SEP, *row[12:], SEP] for row in given.ids.tolist()]


def test_unknown_tokens_are_corrupted_as_others_are() -> None:
    unknown = Rows(np.full((1, 9), V.unk), np.zeros(1, np.uint64))
    assert sources(denoising(noise={"kind": "mask", "rate": 1.0}).prepare(unknown)) == [[MASK] * 9 + [SEP]]


def t5_form(row: list[int], is_noise: np.ndarray) -> tuple[list[int], list[int]]:
    """T5's inputs and targets of one text, token by token: a run of noise is one sentinel in the inputs."""
    source, target, sentinel = list[int](), list[int](), FIRST_SENTINEL - 1
    for n, (id, noisy) in enumerate(zip(row, is_noise, strict=True)):
        if not noisy:
            source.append(id)
            continue
        if n == 0 or not is_noise[n - 1]:
            sentinel += 1
            source.append(sentinel)
            target.append(sentinel)
        target.append(id)
    return [*source, SEP], [*target, SEP]


@pytest.mark.parametrize("length", [2, 9, 30, 57])
def test_sources_and_targets_are_those_of_t5(length: int) -> None:
    given, objective = rows(6, length), settings(**T5)
    batch = objective.build(V).prepare(given)
    for n, row in enumerate(given.ids.tolist()):
        text = objective.noise[0].apply(NoisyText.of(length), np.random.Generator(np.random.Philox(key=n)))
        assert (sources(batch)[n], targets(batch)[n]) == t5_form(row, np.repeat(text.marked, text.lengths))
        assert inputs(batch)[n] == [SEP, *targets(batch)[n][:-1]]


def test_infilled_spans_can_be_predicted_too_and_fill_the_source() -> None:
    """Also where sentences are in another order, and where a span is empty."""
    given = rows(20)
    batch = denoising(
        **T5 | {"noise": ({"kind": "permute_sentences"}, {"kind": "infill", "mean_length": 1.0})}
    ).prepare(given)
    n_empty = 0
    for source, target, row in zip(sources(batch), targets(batch), given.ids.tolist(), strict=True):
        spans: dict[int, list[int]] = {}
        for id in target[:-1]:
            if id >= FIRST_SENTINEL:
                spans[id] = []
            else:
                spans[max(spans)].append(id)
        n_empty += [*spans.values()].count([])
        filled = [one for id in source[:-1] for one in spans.get(id, [id])]
        assert sorted(filled) == sorted(row)
        assert (
            [id for id in source if id >= FIRST_SENTINEL]
            == [*spans]
            == [*range(FIRST_SENTINEL, FIRST_SENTINEL + len(spans))]
        )
    assert n_empty > 0


def test_special_tokens_inside_a_row_are_neither_replaced_nor_moved() -> None:
    given = rows(20)
    given.ids[:, [7, 19]] = SEP
    for noise in ("mask", "delete", "infill", "permute_sentences", "rotate", "spans"):
        batch = denoising(noise={"kind": noise, "rate": 0.5}).prepare(given)
        for source, row in zip(sources(batch), given.ids.tolist(), strict=True):
            assert source.count(SEP) == 3  # the two, and the end
            parts = np.split(source, np.flatnonzero(np.array(source) == SEP))
            for part, text in zip(parts, (row[:7], row[7:19], row[19:]), strict=False):
                assert set(part.tolist()) - {MASK} <= set(text)


@pytest.mark.parametrize("given", [BART, T5], ids=["text", "spans"])
def test_no_source_or_target_is_longer_than_the_context(given: dict[str, Any]) -> None:
    """A row has one token less than the context, to which the end is added."""
    hard = (
        {"kind": "infill", "rate": 1.0, "mean_length": 0.5},
        {"kind": "mask", "rate": 1.0},
        {"kind": "spans", "rate": 0.9, "mean_length": 1},
    )
    for noise in hard:
        batch = denoising(**given | {"noise": noise}).prepare(rows(20))
        assert max(map(len, sources(batch))) <= 31
        assert max(map(len, targets(batch))) <= 31


def test_spans_without_a_sentinel_are_not_replaced() -> None:
    given = rows()
    few = denoising(**T5 | {"sentinels": 2, "noise": {"kind": "mask", "rate": 0.3}}).prepare(given)
    all_of_them = denoising(**T5 | {"noise": {"kind": "mask", "rate": 0.3}}).prepare(given)
    for source, target, whole, row in zip(
        sources(few), targets(few), sources(all_of_them), given.ids.tolist(), strict=True
    ):
        first, second = (n for n, id in enumerate(whole) if id in (FIRST_SENTINEL, FIRST_SENTINEL + 1))
        assert source == [*whole[: second + 1], *row[second + 1 :], SEP]
        assert target == [FIRST_SENTINEL, row[first], FIRST_SENTINEL + 1, row[second], SEP]


def documents() -> Rows:
    """Rows of two documents and padding."""
    segments = np.array([[1] * 12 + [2] * 15 + [0] * 3] * 4)
    given = rows(segments=segments)
    given.ids[:, 12] = SEP
    return given


@pytest.mark.parametrize("given", [BART, T5], ids=["text", "spans"])
def test_documents_of_a_row_are_corrupted_apart(given: dict[str, Any]) -> None:
    batch = denoising(**given).prepare(documents())
    assert batch.source is not None
    for side in (batch.inputs, batch.source):
        assert side.token_positions is not None
        assert side.token_positions.segments is not None
        for ids, segments in zip(side.ids, side.token_positions.segments, strict=True):
            assert segments[segments != 0].diff().ge(0).all()
            assert set(segments.tolist()) <= {0, 1, 2}
            assert (ids[segments == 0] == 0).all()
            if side is batch.inputs:
                assert all(int(ids[segments == n][0]) == SEP for n in (1, 2))
            else:
                assert all(int(ids[segments == n][-1]) == SEP for n in (1, 2))


def model_of(**given: Any) -> Model:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.4}
    return settings_of("models", "encoder_decoder")(**small | given).build(V.size, 64).double()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("given", [BART, T5], ids=["text", "spans"])
def test_no_document_of_a_row_sees_another_one_nor_its_source(given: dict[str, Any]) -> None:
    objective, model, one = denoising(**given), model_of(), documents()
    other = documents()
    other.ids[:, 13:] = np.where(other.ids[:, 13:] == 5, 6, 5)

    def hidden(rows: Rows) -> Tensor:
        batch = objective.prepare(rows)
        assert batch.inputs.token_positions is not None
        y: Tensor = model(batch.inputs, batch.source).y
        assert batch.inputs.token_positions.segments is not None
        return y[batch.inputs.token_positions.segments == 1]

    torch.testing.assert_close(hidden(one), hidden(other), rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise", [{"kind": "mask", "rate": 1.0}, {"kind": "infill", "rate": 1.0}])
def test_if_everything_is_masked_the_decoder_is_a_language_model(noise: dict[str, Any]) -> None:
    """The limit that Lewis et al. name: the source says nothing but how many marks there are."""
    objective, model, given = denoising(noise=noise), model_of(), rows(3)
    batch = objective.prepare(given)
    assert {id for source in sources(batch) for id in source[:-1]} == {MASK}
    loss = objective.task(model).eval()(batch).parts["denoising"]
    expected = torch.zeros((), dtype=torch.float64)
    for row, source in zip(given.ids.tolist(), sources(batch), strict=True):
        y = model(Tokens(torch.tensor([[SEP, *row]])), Tokens(torch.tensor([[MASK] * (len(source) - 1) + [SEP]]))).y
        expected += F.cross_entropy(model.logits(y)[0], torch.tensor([*row, SEP]), reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


def test_bits_per_byte_are_of_the_whole_text_alone() -> None:
    assert "bits_per_byte" in metrics_of(settings())
    assert "bits_per_byte" not in metrics_of(settings(**T5))
    assert "bits_per_byte" in metrics_of(settings_of("objectives", "denoising"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vocabulary", "told"),
    [
        (Vocabulary(40, 0, 1, None, 3), "no separator token"),
        (Vocabulary(40, 0, 1, 2, None), r"no \[MASK\] token"),
        (vocabulary_for(3), "has 3 sentinel tokens; target: spans needs 20"),
    ],
)
def test_a_tokenizer_without_the_tokens_is_refused(vocabulary: Vocabulary, told: str) -> None:
    with pytest.raises(DataFault, match=told):
        settings(**T5).build(vocabulary)


SPANS = "objective={kind: denoising, target: spans, noise: spans, sentinels: 9}"
SMALL = (tiny_model("encoder_decoder"), "train.steps=3", "train.context=24", "eval.every_steps=3", "eval.tokens=200")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("objective={target: spans, noise: delete}", "noise: delete leaves no sentinel where it removes tokens"),
        ("objective={target: spans, noise: rotate}", "noise: replaces no spans, which target: spans predicts"),
        ("objective={noise: infil}", "objective.noise: no such kind 'infil'; did you mean 'infill'?"),
        ("train.context=1", "1 tokens cannot hold an example; use at least 2"),
        ("train.stream=true", "denoising cannot be trained on a stream; use stream: false"),
        ("data.train=translate-toy", "denoising needs text, not pairs"),
        ("model=decoder", "denoising needs causal attention and a source, but decoder has causal attention"),
    ],
)
def test_a_recipe_that_asks_for_more_is_refused(override: str, told: str) -> None:
    done = minitf("pretrain", TINY, *SMALL, "objective.kind=denoising", override, "--dry-run")
    refused(done, told, exit_code=3)


def test_sentinels_come_behind_the_tokens_of_a_trained_tokenizer_and_are_never_read_from_a_text() -> None:
    plain = Tokenizer.train(sections.Tokenizer(kind="byte"), ["a"])
    tokenizer = plain.with_sentinels(3, trained=True)
    assert plain.vocabulary.sentinels == ()
    assert plain.with_sentinels(0) is plain
    assert tokenizer.vocabulary.sentinels == (260, 261, 262)
    assert set(tokenizer.vocabulary.sentinels) <= tokenizer.vocabulary.special_ids
    assert tokenizer.with_sentinels(2) is tokenizer
    text = "one <extra_id_0> two"
    assert np.array_equal(tokenizer.encode(text), plain.encode(text))
    assert tokenizer.decode([*tokenizer.encode("a"), 261]) == "a"
    assert tokenizer.notes == []
    more = tokenizer.with_sentinels(5)
    assert more.notes == ["the tokenizer has 3 sentinel tokens; <extra_id_3> to <extra_id_4> were added"]
    assert more.vocabulary.size == 265


@pytest.mark.parametrize("kind", ["byte", "char", "bpe", "unigram"])
def test_sentences_begin_after_a_full_stop_and_whitespace(kind: str) -> None:
    text = "It is 3.5 (or so.) Is it? Yes!\n\nNo e.g. here."
    tokenizer = Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=300), [text * 20])
    ids = tokenizer.encode(text)
    starts = tokenizer.sentence_starts(ids)
    found = [tokenizer.decode(part).strip() for part in np.split(ids, np.flatnonzero(starts)[1:])]
    assert starts[0]
    assert ["".join(one.split()) for one in found] == ["Itis3.5(orso.)", "Isit?", "Yes!", "Noe.g.", "here."]
    assert np.array_equal(tokenizer.sentence_starts(np.stack([ids, ids])), np.stack([starts, starts]))


BYTES = Tokenizer.train(sections.Tokenizer(kind="byte"), ["a"]).with_sentinels(4)


def infiller(n_sentinels: int) -> Infiller:
    torch.manual_seed(0)
    model = settings_of("models", "encoder_decoder")(d_model=16, n_layers=1, n_heads=2).build(BYTES.vocabulary.size, 64)  # type: ignore[attr-defined]
    return Infiller(model.eval(), BYTES, n_sentinels, Generate(max_new_tokens=3, num_beams=2))


def test_each_mask_of_a_prompt_is_the_next_sentinel_or_the_mask_token() -> None:
    prompt = "ab [MASK] c[MASK]"
    first, second, *_ = BYTES.vocabulary.sentinels
    ab, c = BYTES.encode("ab ").tolist(), BYTES.encode(" c").tolist()
    end = BYTES.vocabulary.separator
    [with_sentinels] = infiller(4).encode_sources([prompt])
    [with_masks] = infiller(0).encode_sources([prompt])
    assert with_sentinels.ids == [*ab, first, *c, second, end]
    assert with_masks.ids == [*ab, BYTES.vocabulary.mask, *c, BYTES.vocabulary.mask, end]
    assert with_masks.length == len(ab) + len(c) + 2


@pytest.mark.parametrize(
    ("generated", "text"),
    [
        ("0old king1died", "the old king saw and died."),
        ("1died0old king", "the old king saw and died."),
        ("0old king", "the old king saw and [MASK]."),
        ("", "the [MASK] saw and [MASK]."),
        ("1died1again3x", "the [MASK] saw and died."),
        ("lost0old king1died", "the old king saw and died."),
        ("01", "the  saw and ."),
    ],
)
def test_generated_spans_fill_the_prompt_and_a_mask_without_a_span_stays(generated: str, text: str) -> None:
    ids = [
        id
        for one in generated
        for id in ([BYTES.vocabulary.sentinels[int(one)]] if one.isdigit() else BYTES.encode(one).tolist())
    ]
    filler = infiller(4)
    assert filler.decode("the [MASK] saw and [MASK].", ids) == text


def test_only_a_model_of_spans_generates_sentinels() -> None:
    special = BYTES.vocabulary.special_ids - {BYTES.vocabulary.separator}
    assert infiller(0)._banned == special
    assert infiller(3)._banned == special - {*BYTES.vocabulary.sentinels[:3]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("denoising")
    objectives = {"text": "objective.kind=denoising", "spans": SPANS}
    return {
        name: trained(folder / name, *SMALL, "data.pack=docs", "log.samples=1", given)
        for name, given in objectives.items()
    }


@pytest.mark.parametrize("name", ["text", "spans"])
def test_a_run_has_samples_and_fills_the_masks_of_prompts(name: str, runs: dict[str, Path]) -> None:
    [sample] = (runs[name] / "samples").iterdir()
    assert sample.read_text().startswith("prompt: ")
    for line in sample.read_text().splitlines():
        if line.startswith("prompt: "):
            before, behind = (len(part.split()) for part in line.removeprefix("prompt: ").split("[MASK]"))
            assert before == behind > 0
    done = minitf(
        "generate", runs[name], "The fox [MASK] and [MASK].", "--max-new-tokens", "5", "--n-best", "2", "--json"
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert {"prompt", "texts", "scores", "logprobs"} == result.keys()
    assert len(result["texts"]) == len(result["scores"]) == 2
    if name == "spans":
        assert all(text.startswith("The fox ") for text in result["texts"])
    refused(minitf("generate", runs[name], "The fox"), "the prompt has no [MASK], which the model fills", exit_code=2)


def test_of_lines_those_before_a_wrong_one_are_filled(runs: dict[str, Path]) -> None:
    lines = "a [MASK]\nb [MASK] [MASK]\nc\nd [MASK]\n"
    done = minitf("generate", runs["spans"], "-i", "-", "--max-new-tokens", "4", stdin=lines)
    assert done.exit_code == 4
    assert len(done.stdout.splitlines()) == 2
    assert "stdin:3: the prompt has no [MASK]" in done.stderr
    refused(
        minitf("generate", runs["spans"], "[MASK] " * 10),
        "the prompt has 10 masks; the model has 9 sentinels for them",
        exit_code=2,
    )


def test_a_mask_that_would_be_truncated_is_refused(runs: dict[str, Path]) -> None:
    read = minitf("generate", runs["spans"], f"[MASK] {'%&' * 30}", "--max-new-tokens", "2")
    assert read.exit_code == 0, read.stderr
    assert "are truncated" in read.stderr
    told = "the prompt has 63 tokens, and a [MASK] behind the 23 that the model reads; shorten the prompt"
    refused(minitf("generate", runs["spans"], f"[MASK] {'%&' * 30}[MASK]"), told, exit_code=2)


def test_a_run_without_sentinels_cannot_begin_one_of_spans(runs: dict[str, Path]) -> None:
    model = f"model={{kind: encoder_decoder, init_from: '{runs['text']}'}}"
    done = minitf("pretrain", TINY, model, "train.steps=1", "train.context=24", SPANS)
    refused(
        done,
        "objective: denoising needs 9 special tokens that the tokenizer of text, the run of model.init_from, does not"
        " have",
        exit_code=3,
    )


def test_sources_and_targets_are_shown(runs: dict[str, Path]) -> None:
    done = minitf("data", "show", runs["spans"])
    assert done.exit_code == 0, done.stderr
    head, table = done.stdout.split("\n\n")
    assert head.startswith(
        "train, denoising, pack docs: each target token attends to earlier target tokens and itself, and to the whole"
        " source"
    )
    assert "source " in table.splitlines()[0]
    assert table.splitlines()[1].split() == ["position", "source", "target", "input", "target"]
    assert table.count("<extra_id_0>") >= 3
    [row] = json.loads(minitf("data", "show", runs["text"], "--json").stdout)["result"]["rows"]
    assert row["source"]["positions"][-1]["reads"] == "</s>"
    assert row["positions"][0]["reads"] == "</s>"
    # The target is the text, whatever became of the source.
    shown = "".join(one["target"] for one in row["positions"] if one["target"] != "</s>")
    assert shown in (Path(__file__).parents[1] / "data" / "tiny.txt").read_text().replace("\n\n", "")


def test_an_encoder_decoder_is_fine_tuned_from_a_denoising_run(runs: dict[str, Path], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"source": f"a text {n}", "target": f"short {n}"}) + "\n" for n in range(40)))
    data = f"data={{train: '{pairs}', fields: {{source: source, target: target}}, split: 20%}}"
    model = f"model={{kind: encoder_decoder, init_from: '{runs['spans']}'}}"
    steps = (
        "train.steps=1",
        "train.context=24",
        "optimizer={kind: adamw, lr: 1e-9}",
        "log.samples=0",
        "runtime.device=cpu",
    )
    done = minitf("finetune", "scitldr-nano", data, model, "objective.kind=seq2seq", *steps, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert "tensors loaded" in done.stderr
    assert " new (" not in done.stderr
    before, after = (open_trained(folder, device="cpu") for folder in (runs["spans"], tmp_path / "run"))
    assert before.tokenizer.hash == after.tokenizer.hash
    for key, tensor in before.model.weights().items():
        torch.testing.assert_close(after.model.weights()[key], tensor, rtol=0, atol=1e-6)
