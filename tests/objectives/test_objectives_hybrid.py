"""GPT-BERT's objective: rows are causal or masked, and its run is read as a decoder and as an encoder, as elsewhere."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import evaluated, minitf, refused, results, tiny_model, trained
from families import transformers

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Objective
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Train
from mini_tf.testing import objectives as contract
from mini_tf.testing.tiny.objectives import FIRST_PLAIN, PLAIN_END, SEPARATOR, VOCABULARY, tiny_objective
from mini_tf.trained.opening import open_trained
from mini_tf.training.feed import Feed
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon, TrainingSchedule

MASK = VOCABULARY.mask
LLAMA = (
    "model={kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, norm: rms, activation: swiglu, d_ff: 48,"
    " attention: {kind: softmax, qk_norm: false}}"
)
TEXT = "the old fox was"


def hybrid(**given: Any) -> Objective:
    return settings_of("objectives", "hybrid")(**given).build(VOCABULARY)  # type: ignore[attr-defined, no-any-return]


def rows(n: int, length: int = 41, documents: int = 1) -> Rows:
    """Rows of random tokens, each of some documents that begin with the separator."""
    ids = np.random.default_rng(0).integers(FIRST_PLAIN, PLAIN_END, (n, length))
    segments = np.repeat(np.arange(length) * documents // length + 1, 1)[None].repeat(n, 0)
    ids[:, np.flatnonzero(np.diff(segments[0], prepend=0))] = SEPARATOR
    return Rows(ids, np.arange(n).astype(np.uint64), None if documents == 1 else segments)


def is_causal(batch: Batch) -> torch.Tensor:
    """(B,): whether tokens attend to earlier tokens alone."""
    positions = batch.inputs.token_positions
    assert positions is not None
    assert positions.orders is not None
    return positions.orders[:, 0] == 0


def of_part(batch: Batch, part: str) -> torch.Tensor:
    """Flat positions of the targets of a part of the loss."""
    at = batch.target_positions
    assert at is not None
    return at[batch.extras[part]]


def test_rows_are_causal_by_their_key_at_the_rate() -> None:
    """The masks of the others are those of the masking alone: the draw of the kind of a row does not select them."""
    batch = hybrid(causal_rate=0.25).prepare(rows(2000, 12))
    causal = is_causal(batch)
    assert abs(float(causal.float().mean()) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 2000)
    first_masked = (batch.inputs.ids[:, 1:-1] != torch.from_numpy(rows(2000, 12).ids)[:, 1:-2]).float()[~causal].mean(0)
    assert float((first_masked - first_masked.mean()).abs().max()) < 0.05, "no place is masked more often than another"


def test_a_masked_token_is_predicted_at_the_position_before_it() -> None:
    given = rows(64, 41, documents=3)
    batch = hybrid(replace=(1.0, 0.0, 0.0), final_mask_rate=None).prepare(given)
    row, position = np.divmod(of_part(batch, "masked").numpy(), 40)
    assert set(row) == set(np.flatnonzero(~is_causal(batch).numpy()))
    assert (batch.inputs.ids.numpy()[row, position + 1] == MASK).all()
    assert batch.labels[batch.extras["masked"]].tolist() == given.ids[row, position + 1].tolist()
    assert given.segments is not None
    assert (given.segments[row, position] == given.segments[row, position + 1]).all(), "no document predicts another"
    others = batch.inputs.ids.numpy() == MASK
    others[row, position + 1] = False
    assert not others.any()
    n = np.bincount(row)[row[0]]
    assert n == round(0.3 * (40 - 3)), "separators are not masked"


@torch.no_grad()
def test_masked_rows_attend_to_both_sides_and_causal_rows_to_one() -> None:
    case = tiny_objective(settings_of("objectives", "hybrid")())  # type: ignore[arg-type]
    plain = replace(case.rows, segments=None)
    batch = case.objective.prepare(plain)
    last = batch.inputs.ids.shape[1] - 1
    ids = batch.inputs.ids.clone()
    ids[:, last] = torch.where(ids[:, last] == FIRST_PLAIN, FIRST_PLAIN + 1, FIRST_PLAIN)
    before, after = (case.model(replace(batch.inputs, ids=given)).y for given in (batch.inputs.ids, ids))
    changed = (before[:, 0] != after[:, 0]).any(-1)
    assert changed.tolist() == (~is_causal(batch)).tolist()
    assert len(changed.unique()) == 2


def test_both_losses_of_equal_logits_are_log_v() -> None:
    contract.equal_logits_have_the_loss_log_v(settings_of("objectives", "hybrid")())  # type: ignore[arg-type]


def test_the_words_of_a_masked_row_are_those_up_to_its_last_token() -> None:
    one_word_each = replace(rows(2, 9), word_starts=np.ones((2, 9), bool))
    everything = {"mask_rate": 0.99, "final_mask_rate": None, "replace": (1.0, 0.0, 0.0), "causal_rate": 1e-9}
    batch = hybrid(scheme="whole_word", **everything).prepare(one_word_each)
    assert (batch.inputs.ids[:, 1:] == MASK).all()


def test_each_part_is_padded_to_a_share_of_the_positions_while_there_are_some_without_target() -> None:
    case = tiny_objective(settings_of("objectives", "hybrid")())  # type: ignore[arg-type]
    batch = case.objective.prepare(rows(16, 9))
    padded = case.task.pad_targets(batch, 8)
    assert [len(index) % 16 for index in padded.extras.values()] == [0, 0]
    assert len(padded.labels) > len(batch.labels)
    assert case.task.pad_targets(batch, 1) is batch  # two times all positions are too many


def test_an_evaluation_reads_every_row_in_both_ways() -> None:
    """The loss of the causal rows is that of next_token; every token is a target once."""
    case = tiny_objective(settings_of("objectives", "hybrid")())  # type: ignore[arg-type]
    causal: Any = settings_of("objectives", "next_token")()
    other = causal.build(VOCABULARY)
    expected = other.task(case.model).eval()(other.prepare(case.rows), None)
    batch, sums = case.sums(training=False)
    assert is_causal(batch).tolist() == [True, False] * 8
    torch.testing.assert_close(sums.parts["next_token"], expected.parts["next_token"])
    assert int(sums.metrics["accuracy"][0]) == int(expected.metrics["accuracy"][0])
    assert batch.counts["next_token"] == len(other.prepare(case.rows).labels)


@pytest.mark.parametrize("kind", ["hybrid", "masked"])
def test_the_share_of_masks_falls_over_the_steps_of_the_run(kind: str) -> None:
    class Texts:
        def take(self, numbers: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
            return replace(rows(len(numbers), 102 if kind == "hybrid" else 100), keys=keys)

    settings: Any = settings_of("objectives", kind)(mask_rate=0.4, final_mask_rate=0.2)
    objective = settings.build(VOCABULARY)
    schedule = TrainingSchedule(settings_of("schedules", "cosine")(), 1e-3, Horizon(steps=10))  # type: ignore[arg-type]
    extended = schedule.extended(10, 5)
    feed = Feed(RowPlan(100, 8, 0), Texts(), objective.prepare, 4, progress=extended.progress)  # type: ignore[arg-type]
    shares = []
    for step in (0, 5, 10, 14):
        batches = feed.micro_batches(step)
        n_masked = sum(len(batch.extras["masked"]) if kind == "hybrid" else len(batch.labels) for batch in batches)
        n_rows = sum(int((~is_causal(batch)).sum()) if kind == "hybrid" else 4 for batch in batches)
        shares.append(n_masked / n_rows / (100 if kind == "hybrid" else 99))
    assert shares == pytest.approx([0.4, 0.3, 0.2, 0.2], abs=0.006)
    [rule] = settings.rules_with(None, Train(time=60.0))
    assert "train.time does not say" in rule[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with micro-batches of two of its eight rows."""
    folder = tmp_path_factory.mktemp("hybrid")
    steps = ("train.steps=6", "train.batch_size=8", "train.context=16", "optimizer.lr=0.02", "log.every_steps=1")
    trained(folder / "whole", LLAMA, "objective.kind=hybrid", *steps)
    return trained(folder / "run", LLAMA, "objective.kind=hybrid", *steps, "train.micro_batch_size=2")


def test_micro_batches_change_no_loss_of_a_run(run: Path) -> None:
    whole, parts = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (run.parent / "whole", run)
    )
    assert len(whole) == len(parts) == 6
    for one, other in zip(whole, parts, strict=True):
        assert other == pytest.approx(one, rel=1e-4)
    assert {"val.loss.next_token", "val.loss.masked", "val.accuracy", "val.masked_accuracy"} <= parts[-1].keys()


def test_an_evaluation_gives_both_losses_and_their_weighted_sum(run: Path) -> None:
    metrics = evaluated(run)
    assert metrics["loss"] == pytest.approx((metrics["loss.next_token"] + metrics["loss.masked"]) / 2)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss.next_token"]))
    assert 0 < metrics["bits_per_byte"] < 9


@torch.no_grad()
def test_transformers_reads_the_run_as_a_decoder_and_as_an_encoder(run: Path, tmp_path: Path) -> None:
    """Log-probabilities of a text and the tokens at a mask are those of its Llama and of its EuroBERT."""
    for family in ("llama", "eurobert"):
        done = minitf("export", run, "--to", family, "-o", tmp_path / family)
        assert done.exit_code == 0, done.stderr
    assert "take the logits at i - 1" in (tmp_path / "eurobert" / "README.md").read_text()
    assert "logits at i - 1" not in (tmp_path / "llama" / "README.md").read_text()
    library = transformers()
    tokenizers = [library.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("llama", "eurobert")]
    assert [one.mask_token for one in tokenizers] == ["[MASK]", "[MASK]"]
    causal = library.LlamaForCausalLM.from_pretrained(tmp_path / "llama").eval()
    masked = library.EuroBertForMaskedLM.from_pretrained(tmp_path / "eurobert").eval()
    ids = tokenizers[0](TEXT, return_tensors="pt").input_ids
    after = causal(ids).logits[0].log_softmax(-1)
    sums = {"causal": sum(float(after[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])), "token": 0.0}
    for i in range(1, ids.shape[1]):
        hidden = ids.clone()
        hidden[0, i] = tokenizers[1].mask_token_id
        sums["token"] += float(masked(hidden).logits[0, i - 1].log_softmax(-1)[ids[0, i]])
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"sentence_good": TEXT, "sentence_bad": "a"}) + "\n")
    for kind, expected in sums.items():
        scores = open_scores(run, kind)
        assert scores == pytest.approx([expected], abs=1e-4), kind
    done = minitf("generate", run, "the [MASK] fox", "a fox", "--json")
    filled, continued = results(done.stdout)
    assert "candidates" not in continued
    prompt = tokenizers[1]("the [MASK] fox", return_tensors="pt").input_ids
    [at] = (prompt[0] == tokenizers[1].mask_token_id).nonzero()
    p = masked(prompt).logits[0, int(at) - 1].softmax(-1)
    p[tokenizers[1].all_special_ids] = 0
    assert [one["p"] for one in filled["candidates"][0]] == pytest.approx(p.topk(5).values.tolist(), abs=1e-4)


def open_scores(run: Path, kind: str) -> list[float]:
    from mini_tf.pipelines import pipeline_of

    return pipeline_of(open_trained(run, device="cpu")).text_scorer(kind).texts([TEXT])


@torch.no_grad()
def test_a_prompt_is_read_causally(run: Path) -> None:
    done = minitf("generate", run, "The fox", "--temperature", "0", "--max-new-tokens", "1", "--json")
    opened = open_trained(run, device="cpu")
    prompt = [opened.tokenizer.vocabulary.separator, *map(int, opened.tokenizer.encode("The fox"))]
    by_way = [
        opened.model.logits(opened.model(Tokens(torch.tensor([prompt]), positions)).y)[0, -1]
        for positions in (None, TokenPositions(len(prompt)).with_prefix(torch.tensor([len(prompt)])))
    ]
    assert not torch.allclose(*by_way)
    by_way[0][sorted(opened.tokenizer.vocabulary.special_ids - {opened.tokenizer.vocabulary.separator})] = -1e9
    assert results(done.stdout)[0]["texts"] == [opened.tokenizer.decode([int(by_way[0].argmax())])]
    shown = minitf("data", "show", run).stdout
    assert (
        "earlier tokens and itself, in its row (causal rows); each token attends to earlier and later tokens" in shown
    )


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("model=encoder",), "hybrid needs prefix attention, but encoder has bidirectional attention"),
        (("train={time: 30, steps: null}",), "final_mask_rate: needs the number of steps, which train.time"),
        (("train.context=1",), "1 token has none before it at which it is predicted"),
        (("objective={causal_rate: 1}",), "objective.causal_rate"),
    ],
)
def test_a_recipe_that_cannot_be_hybrid_is_refused(overrides: tuple[str, ...], told: str) -> None:
    arguments = ("objective.kind=hybrid", tiny_model("decoder"), *overrides, "--dry-run")
    refused(minitf("pretrain", "tests/data/tiny.yaml", *arguments), told, exit_code=3)


def test_options_of_sampling_are_refused_for_masks(run: Path) -> None:
    done = minitf("generate", run, "the [MASK]", "--temperature", "0.5")
    refused(done, "--temperature: the prompt has a [MASK], which is filled, and not continued", exit_code=2)


def test_no_limit_of_tokens_is_for_prompts_without_masks(run: Path) -> None:
    options = ("--top-k", "0", "--max-new-tokens", "3", "--json")
    assert json.loads(minitf("generate", run, "the", *options).stdout)["result"]["texts"]
    refused(minitf("generate", run, "the [MASK]", "--top-k", "0"), "--top-k: must be at least 1, got 0", exit_code=2)
