"""Replaced token detection: against Hugging Face's ELECTRA, formulas, and masked language modelling."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import DATA, QUIET, TINY, minitf, refused, tiny_model, trained
from families import filled
from safetensors.torch import load_file
from test_nn_task_head import gelu
from torch import nn
from toys import seeded

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.drawing.labels import label
from mini_tf.drawing.plotting import figure_caption
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Objective
from mini_tf.papers.electra.networks import DetectionHead, sample
from mini_tf.papers.electra.pipelines.replaced_token_detection import area_under_curve
from mini_tf.papers.electra.replacement import Replacement
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import DataFault
from mini_tf.testing import models as model_contract
from mini_tf.testing.tiny.objectives import VOCABULARY, rows_for
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained

V, SPECIAL = VOCABULARY.size, sorted(VOCABULARY.special_ids)


def settings(**given: Any) -> Any:
    return settings_of("objectives", "replaced_token")(**given)


def encoder(**given: Any) -> Any:
    return settings_of("models", "encoder")(**{"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.3, **given})


def made(objective: Objective, model: Any = None) -> Any:
    """The task of an objective, in float64."""
    torch.manual_seed(0)
    built: Model = (model or encoder()).build(V, 64)
    objective.add_modules(built)
    return objective.task(built).double()


def task_of(model: Any = None, **given: Any) -> tuple[Replacement, Batch]:
    """The task, in eval mode, and a batch with padding."""
    objective = settings(**given).build(VOCABULARY)
    rows = rows_for("text", 0, objective.needs_word_starts, 24)
    return made(objective, model).eval(), objective.prepare(rows)


def test_a_vocabulary_needs_two_tokens_that_can_take_each_others_place() -> None:
    settings: Any = settings_of("objectives", "replaced_token")()
    settings.build(Vocabulary(6, pad=0, unk=1, separator=2, mask=3))
    with pytest.raises(DataFault, match="fewer than 2 tokens"):
        settings.build(Vocabulary(5, pad=0, unk=1, separator=2, mask=3))


# The two networks


def test_no_gradient_of_the_discriminator_reaches_the_generator_but_for_the_shared_embedding() -> None:
    task, batch = task_of()
    assert isinstance(task.generator, Model)
    task.train()(batch).parts["discriminator"].backward()
    table = task.model.embedding.tokens.weight
    assert table.grad is not None
    assert table.grad.norm() > 0
    assert table is task.generator.embedding.tokens.weight is task.generator.head.linear.weight
    body = {name: p.grad for name, p in task.generator.named_parameters() if p is not table}
    assert body
    assert all(grad is None or not grad.any() for grad in body.values())


@pytest.mark.parametrize("tying", ["none", "embeddings", "all"])
def test_tied_weights_are_one_tensor(tying: str) -> None:
    sizes = {"generator_width": 1.0} if tying == "all" else {"generator_width": 0.5}
    model = encoder(positions=settings_of("positions", "learned")(), embed_norm=True, n_types=2)
    task, _ = task_of(model, tying=tying, **sizes)
    assert isinstance(task.generator, Model)
    own = {id(p) for p in task.model.parameters()}
    shared = {
        name.partition(".")[0] if tying == "all" else name
        for name, p in task.generator.named_parameters()
        if id(p) in own
    }
    embedding = {f"embedding.{name}.weight" for name in ("tokens", "types", "norm", "position.table")}
    assert shared == {"none": set(), "embeddings": embedding, "all": {"embedding", "stack"}}[tying]
    assert task.generator.head.linear.weight is task.generator.embedding.tokens.weight  # type: ignore[union-attr]


def test_a_generator_whose_logits_are_zero_has_the_loss_ln_v() -> None:
    task, batch = task_of(tying="none")
    assert isinstance(task.generator, Model)
    nn.init.zeros_(task.generator.head.linear.weight)  # type: ignore[arg-type, union-attr]
    assert task(batch).parts["generator"].item() == pytest.approx(len(batch.labels) * math.log(V), rel=1e-12)


@pytest.mark.parametrize("model", [{}, {"d_embedding": 6}], ids=["default", "narrow embedding"])
def test_hugging_faces_electra_gives_the_same_losses(model: dict[str, Any]) -> None:
    """Both networks, with tables narrower than the discriminator and wider than the generator; a sequence is padded."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    torch.manual_seed(0)
    e = model.get("d_embedding", 16)
    common = {
        "vocab_size": V, "embedding_size": e, "num_hidden_layers": 2, "max_position_embeddings": 64,
        "attn_implementation": "eager",
        "initializer_range": 0.2,
    }  # fmt: skip
    theirs = {
        "generator": (
            ElectraForMaskedLM(
                ElectraConfig(hidden_size=8, num_attention_heads=1, intermediate_size=32, **common)
            ).eval()
        ),
        "model": (
            ElectraForPreTraining(
                ElectraConfig(hidden_size=16, num_attention_heads=2, intermediate_size=64, **common)
            ).eval()
        ),
    }
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
    for name in tables:
        theirs["generator"].electra.embeddings.get_submodule(name).load_state_dict(
            theirs["model"].electra.embeddings.get_submodule(name).state_dict()
        )
    own = encoder(
        **model,
        bias=True,
        norm_place="post",
        norm_eps=1e-12,
        n_types=2,
        embed_norm=True,
        positions=settings_of("positions", "learned")(),
    )
    task, batch = task_of(own, generator_width=0.5)
    task.float()
    for head, (which, network) in enumerate(reversed(theirs.items())):
        filled(getattr(task, which), "electra", network.state_dict(), head=head)
    segments = batch.inputs.token_positions.segments  # type: ignore[union-attr]
    labels = torch.full_like(batch.inputs.ids, -100).flatten()
    labels[batch.target_positions] = batch.labels
    with torch.no_grad():
        found, ids = task(batch), task.replace_tokens(batch)
        generator = theirs["generator"](
            batch.inputs.ids, attention_mask=segments, labels=labels.view_as(batch.inputs.ids)
        )
        fake = (ids != batch.extras["original"]).long()
        detector = theirs["model"](ids, attention_mask=segments, labels=fake)
    assert fake.any()
    torch.testing.assert_close(found.parts["generator"] / batch.counts["generator"], generator.loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        found.parts["discriminator"] / batch.counts["discriminator"], detector.loss, rtol=0, atol=1e-5
    )
    assert found.outputs is not None
    torch.testing.assert_close(found.outputs[:, 0], detector.logits[segments != 0], rtol=0, atol=1e-5)
    hits = generator.logits.flatten(0, 1)[batch.target_positions].argmax(-1) == batch.labels
    assert int(found.metrics["generator_accuracy"][0]) == int(hits.sum())
    right = (detector.logits > 0) == (fake == 1)
    assert [int(n) for n in found.metrics["accuracy"]] == [int(right[segments != 0].sum()), int((segments != 0).sum())]


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_model_with_a_narrow_embedding_keeps_to_the_contract_of_models(kind: str) -> None:
    for head in ("linear", "bert"):
        for case in model_contract.cases(
            settings_of("models", kind)(d_model=16, n_layers=2, n_heads=2, d_embedding=6, head=head)
        ):  # type: ignore[arg-type]
            case.run()


# Samples and labels


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    logits, draw = torch.tensor([2.0, 0.0, 1.0, -1.0, 0.5, 3.0, -0.3]), torch.Generator().manual_seed(1)
    excluded = torch.tensor([False, False, False, True, False, False, False])
    n = 40000
    drawn = sample(logits.expand(n, -1) / 0.7, torch.rand(n, generator=draw), excluded)
    expected = n * (logits / 0.7).masked_fill(excluded, -math.inf).softmax(-1).double()
    counts = torch.bincount(drawn, minlength=7).double()
    assert counts[3] == 0
    chi_square = ((counts - expected).square() / expected)[~excluded].sum().item()
    assert chi_square < 22.5  # 5 degrees of freedom: exceeded once in 2,500 seeds


@pytest.mark.parametrize("u", [0.0, 1 - 2**-24])
def test_the_extreme_uniform_numbers_draw_allowed_tokens(u: float) -> None:
    excluded = torch.zeros(1000, dtype=torch.bool)
    excluded[[0, 1, 998, 999]] = True
    [drawn] = sample(
        torch.randn(1, 1000, generator=torch.Generator().manual_seed(0)), torch.tensor([u]), excluded
    ).tolist()
    assert drawn == (997 if u else 2)


def test_the_number_of_a_position_decides_its_sample() -> None:
    """By inversion of the cumulative distribution, in the order of the ids."""
    u = torch.linspace(0, 0.999, 50)
    drawn = sample(torch.zeros(50, 10), u, torch.zeros(10, dtype=torch.bool))
    assert drawn.tolist() == [int(10 * one) for one in u.tolist()]


def constant_rows(token: int) -> Rows:
    return Rows(np.full((4, 12), token), np.arange(4).astype(np.uint64))


@pytest.mark.parametrize("disallow", [False, True])
def test_a_sample_that_is_the_original_token_counts_as_original(disallow: bool) -> None:
    """The proposal draws token 7, of which all rows consist, nearly always."""
    objective = settings(proposal="unigram", disallow_correct=disallow).build(VOCABULARY)
    task, batch = made(objective).eval(), objective.prepare(constant_rows(7))
    task.generator.counts.fill_(1e-12)[7] = 1.0
    sums = task(batch)
    n_masked = len(batch.labels)
    assert sums.metrics["replaced_rate"] == (n_masked if disallow else 0, 48)
    scores, labels = sums.outputs.unbind(1)
    assert int(labels.sum()) == (n_masked if disallow else 0)
    torch.testing.assert_close(
        sums.parts["discriminator"], F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
    )


@pytest.mark.parametrize("proposal", ["generator", "unigram", "uniform"])
def test_special_tokens_are_neither_replaced_nor_sampled(proposal: str) -> None:
    task, batch = task_of(proposal=proposal, mask_rate=0.9)
    ids, original = task.replace_tokens(batch), batch.extras["original"]
    changed = ids != original
    assert changed.any()
    assert not np.isin(ids[changed].numpy(), SPECIAL).any()
    assert not np.isin(original[changed].numpy(), SPECIAL).any()


def test_the_generator_is_never_shown_a_random_token() -> None:
    rows = Rows(np.random.default_rng(0).integers(4, V, (40, 200)), np.arange(40).astype(np.uint64))
    batch = settings().build(VOCABULARY).prepare(rows)
    shown = batch.inputs.ids.flatten()[batch.target_positions]
    masked = shown == VOCABULARY.mask
    assert ((shown == batch.labels) | masked).all()
    assert len(shown) == 40 * 30
    assert abs(masked.double().mean().item() - 0.85) < 4 * math.sqrt(0.85 * 0.15 / 1200)


@pytest.mark.parametrize(("temperature", "certain"), [(0.02, True), (1.0, False)])
def test_a_low_temperature_draws_the_most_probable_token(temperature: float, certain: bool) -> None:
    task, batch = task_of(proposal="unigram", temperature=temperature, mask_rate=0.5)
    task.generator.counts.fill_(1.0)[7] = 2.0  # type: ignore[index, operator, union-attr]
    drawn = task.replace_tokens(batch).flatten()[batch.target_positions]
    assert bool((drawn == 7).all()) == certain


# The grid of losses


def test_masks_as_proposal_and_softmax_on_them_is_masked_language_modelling() -> None:
    replace = (0.8, 0.1, 0.1)
    masked = settings_of("objectives", "masked")(replace=replace).build(VOCABULARY)  # type: ignore[attr-defined]
    own = settings(proposal="mask", loss_on="masked", loss="softmax", replace=replace).build(VOCABULARY)
    rows = rows_for("text", 0, False, 24)
    theirs, ours = made(masked), made(own)
    assert theirs.model.weights().keys() == ours.model.weights().keys()
    assert own.weights == {}
    for training in (True, False):
        expected, found = (task.train(training)(one.prepare(rows)) for task, one in ((theirs, masked), (ours, own)))
        torch.testing.assert_close(expected.parts["masked"], found.parts["discriminator"], rtol=1e-12, atol=0)
    assert int(expected.metrics["accuracy"][0]) == int(found.metrics["accuracy"][0])


def test_the_loss_on_masked_positions_is_that_part_of_the_loss_on_all() -> None:
    (everywhere, batch), (masked, at) = task_of(), task_of(loss_on="masked")
    outputs, where = everywhere(batch).outputs, torch.isin(batch.extras["real"], at.target_positions)  # type: ignore[arg-type]
    assert outputs is not None
    torch.testing.assert_close(masked(at).outputs, outputs[where])
    assert (at.counts["discriminator"], batch.counts["discriminator"]) == (len(at.labels), batch.counts["tokens"])


def test_the_copied_token_has_the_gates_probability_and_its_share_of_the_rest() -> None:
    task, batch = task_of(loss="softmax_copy")
    assert task.gate is not None
    hidden, shown = torch.randn(9, 16, dtype=torch.float64), torch.arange(9) + 4
    p, gate = task.model.logits(hidden).softmax(-1), task.gate(hidden).sigmoid()
    expected = gate * F.one_hot(shown, V) + (1 - gate) * p
    torch.testing.assert_close(expected.sum(-1), torch.ones(9).double())
    rest, copying = task._log_probabilities(hidden, shown)
    torch.testing.assert_close(rest.scatter(1, shown[:, None], copying[:, None]).exp(), expected)
    # The loss of a batch is the mean of -log p over all tokens.
    ids, original = task.replace_tokens(batch), batch.extras["original"]
    real = batch.extras["real"]
    hidden = task.model(Tokens(ids, batch.inputs.token_positions)).y.flatten(0, 1)[real]
    p, gate = task.model.logits(hidden).softmax(-1), task.gate(hidden).sigmoid()
    found = gate * F.one_hot(ids.flatten()[real], V) + (1 - gate) * p
    loss = -found.gather(1, original.flatten()[real][:, None]).log().sum()
    torch.testing.assert_close(task(batch).parts["discriminator"], loss)


@pytest.mark.parametrize("loss", ["binary", "softmax", "softmax_copy"])
def test_a_token_is_replaced_with_what_is_left_of_its_own_probability(loss: str) -> None:
    """The sigmoid, or 1 - p(the token that is shown); the score of an evaluation orders the tokens in the same way."""
    task, batch = task_of(loss=loss)
    tokens = Tokens(task.replace_tokens(batch), batch.inputs.token_positions)
    hidden, shown = task.model(tokens).y.flatten(0, 1), tokens.ids.flatten()[:, None]
    logits = task.model.logits(hidden)
    kept = 1 - logits.sigmoid().squeeze(1) if loss == "binary" else logits.softmax(-1).gather(1, shown).squeeze(1)
    if task.gate is not None:
        gate = task.gate(hidden).sigmoid().squeeze(1)
        kept = gate + (1 - gate) * kept
    found = task.replaced_probabilities(tokens)
    torch.testing.assert_close(found, (1 - kept).view_as(tokens.ids))
    outputs, real = task(batch).outputs, batch.extras["real"]
    assert outputs is not None
    assert outputs[:, 0].argsort().tolist() == found.flatten()[real].argsort().tolist()
    assert outputs[:, 1].tolist() == (tokens.ids != batch.extras["original"]).flatten()[real].tolist()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"proposal": "mask"},
            "objective.proposal=mask: [MASK] tells that a token was replaced; use loss: softmax or softmax_copy",
        ),
        ({"tying": "all"}, "objective.tying=all: all needs generator_width: 1 and generator_depth: 1"),
        (
            {"generator_steps": 5, "generator_width": 1},
            "objective.generator_steps=5: two-stage training copies the generator's weights",
        ),
        (
            {"generator_steps": 600, "generator_width": 1, "tying": "none"},
            (
                "objective.generator_steps=600: 600 steps are not fewer than the 600 of the run, so the model would not"
                " be trained; use fewer"
            ),
        ),
        ({"replace": "[0.9, 0.2, 0]"}, "the three shares must be 0 or more and sum to 1"),
    ],
)
def test_a_cell_of_the_grid_that_does_not_exist_is_refused_by_name(given: dict[str, Any], fault: str) -> None:
    overrides = [f"objective.{key}={value}" for key, value in given.items()]
    refused(minitf("recipe", "check", "electra-nano", *overrides), fault, exit_code=3)


# Metrics


def test_losses_are_compared_only_between_equal_weights_losses_and_tokenizers() -> None:
    """`runs compare` compares the losses of equal units, and of equal tokenizers if the unit ends with "per token"."""
    cells: list[dict[str, Any]] = [
        {},
        {"weight": 5},
        {"loss": "softmax"},
        {"loss_on": "masked"},
        {"proposal": "uniform"},
    ]
    units = [settings(**cell).LOSS_UNIT for cell in cells]
    assert len({*units}) == len(cells)
    assert all(unit.endswith("per token") for unit in units)
    assert units[:2] == ["nats, generator + 50 binary, per token", "nats, generator + 5 binary, per token"]


def test_the_area_under_the_curve_equals_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    draw = np.random.default_rng(0)
    for levels in (3, 1000):  # with many ties and with few
        scores, positive = draw.integers(0, levels, 500) / levels, draw.random(500) < 0.2
        assert area_under_curve(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert area_under_curve(scores, np.zeros(500, bool)) is None
    assert area_under_curve(np.zeros(4), np.array([True, False, False, True])) == 0.5


def test_the_ratio_of_gradients_is_that_on_the_shared_embedding() -> None:
    task, batch = task_of(weight=7.0)
    found = task.gradient_metrics(batch)["gradient_ratio"]
    table = task.model.embedding.tokens.weight
    assert table.grad is None
    norms = []
    for name, weight in (("discriminator", 7.0), ("generator", 1.0)):
        (task(batch).parts[name] * weight / batch.counts[name]).backward()
        assert table.grad is not None
        norms.append(table.grad.norm().item())
        table.grad = None
    assert found == pytest.approx(norms[0] / norms[1], rel=1e-6)
    assert task_of(tying="none")[0].gradient_metrics(batch) == {}


# Runs

SMALL = (tiny_model("encoder"), "model.d_model=16", "train.context=16", "eval.tokens=64", "data.split=20%", *QUIET)
DUE = ("train.steps=6", "eval.every_steps=2", "checkpoint.every_steps=1", "checkpoint.keep_last=9", "log.every_steps=1")
OWN = "objective.safetensors"
TWO_STAGES = "{kind: replaced_token, tying: none, generator_width: 1, generator_steps: 3}"


def files_of(run: Path) -> dict[str, bytes]:
    names = (OWN, "model.safetensors", "optimizer.safetensors")
    found = {
        f"{step.name}/{name}": (step / name).read_bytes() for step in (run / "checkpoints").iterdir() for name in names
    }
    return {"metrics": (run / "metrics.jsonl").read_bytes(), **found}


@pytest.fixture(scope="module")
def two_stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("stages") / "run", *SMALL, *DUE, f"objective={TWO_STAGES}")


def test_two_stages_have_no_flops_per_step(two_stages: Path) -> None:
    """A step runs one network or trains one of two; steps times the FLOPs of both would be too many."""
    assert json.loads((two_stages / "run.json").read_text())["flops_per_step"] is None


def test_in_two_stages_the_generator_learns_alone_and_then_the_discriminator_from_its_weights(two_stages: Path) -> None:
    own, model = (
        [load_file(two_stages / "checkpoints" / f"step-{n:08d}" / name) for n in range(1, 7)]
        for name in (OWN, "model.safetensors")
    )
    body = [name for name in model[0] if name.startswith(("embedding.", "stack."))]
    assert all(f"generator.{name}" in own[0] for name in body)
    for n in (1, 2):
        assert all(torch.equal(model[0][name], model[n][name]) for name in model[0])
        assert any(not torch.equal(own[0][name], own[n][name]) for name in own[0])
    for n in (3, 4, 5):  # after steps 4 to 6
        assert all(torch.equal(own[2][name], own[n][name]) for name in own[2])
        moved = [(model[n][name] - own[2][f"generator.{name}"]).abs().max().item() for name in body]
        assert 0 < max(moved) < 0.1
    assert any(not torch.equal(model[3][name], model[5][name]) for name in body)
    lines = [json.loads(line) for line in (two_stages / "metrics.jsonl").read_text().splitlines()]
    assert [("loss.discriminator" in line) for line in lines if "loss" in line] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("kept", [2, 3, 4])
def test_a_run_in_two_stages_that_is_cut_off_continues_to_the_same_bytes(
    two_stages: Path, tmp_path: Path, kept: int
) -> None:
    copy = Path(shutil.copytree(two_stages, tmp_path / "run"))
    for step in range(kept + 1, 7):
        shutil.rmtree(copy / "checkpoints" / f"step-{step:08d}")
    (copy / "run.json").write_text(json.dumps(json.loads((copy / "run.json").read_text()) | {"state": "running"}))
    trained(copy, *SMALL, *DUE, f"objective={TWO_STAGES}")
    assert files_of(copy) == files_of(two_stages)


def test_the_frequencies_of_tokens_come_from_the_training_data_and_stay_with_the_run(tmp_path: Path) -> None:
    run = trained(
        tmp_path / "run",
        *SMALL,
        "train.steps=2",
        "objective={kind: replaced_token, proposal: unigram}",
        "eval.tokens=null",
    )
    opened = open_trained(run, device="cpu")
    stored = load_file(max((run / "checkpoints").iterdir()) / OWN)["generator.counts"]
    data = evaluation_data(opened, None, "train")
    expected = np.bincount(data.ids, minlength=len(stored))
    expected[sorted(opened.tokenizer.vocabulary.special_ids)] = 0
    assert stored.tolist() == expected.tolist()
    metrics = json.loads(minitf("evaluate", run, "--json").stdout)["metrics"]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert metrics["loss"] == pytest.approx(last["val.loss"], rel=1e-6)
    assert "perplexity" not in metrics
    refused(minitf("generate", run, "a [MASK]"), "this run has no network that predicts tokens", exit_code=5)


def test_data_of_one_token_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a" * 500)
    given = (
        f"data.train={tmp_path / 'text.txt'}",
        "tokenizer={kind: byte}",
        "objective={kind: replaced_token, proposal: unigram}",
    )
    done = minitf("pretrain", TINY, *SMALL, *given, "train.steps=1", "-d", tmp_path / "run")
    refused(done, "the training data have fewer than 2 different tokens, so no token can be replaced")


@pytest.fixture(scope="module")
def electra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("electra") / "run", *SMALL, "train.steps=3", "objective=replaced_token")


def test_evaluate_reports_both_networks(electra: Path) -> None:
    metrics = json.loads(minitf("evaluate", electra, "--json").stdout)["metrics"]
    parts = [metrics[f"loss.{name}"] for name in ("generator", "discriminator")]
    assert metrics["loss"] == pytest.approx(parts[0] + 50 * parts[1])
    assert {"auc", "generator_accuracy", "replaced_rate", "gradient_ratio", "accuracy"} <= metrics.keys()
    assert "perplexity" not in metrics


def test_a_mask_is_filled_by_the_generator(electra: Path) -> None:
    opened = open_trained(electra, device="cpu")
    task: Any = opened.task()
    before = [minitf("generate", electra, "the [MASK] king", "--json").stdout for _ in range(2)]
    assert before[0] == before[1]
    given = json.loads(before[0])["result"]
    [shown] = given if isinstance(given, list) else [given]
    tokenizer, special = opened.tokenizer, sorted(opened.tokenizer.vocabulary.special_ids)
    ids = [
        tokenizer.vocabulary.separator,
        *tokenizer.encode("the "),
        tokenizer.vocabulary.mask,
        *tokenizer.encode(" king"),
    ]
    p = task.generator.logits(task.generator(Tokens(torch.tensor([[*map(int, ids)]]))).y)[0, -6].softmax(-1)
    p[special] = 0
    assert [one["p"] for one in shown["candidates"][0]] == pytest.approx(p.topk(5).values.tolist(), abs=1e-5)


def test_inspect_shows_the_probability_of_every_token(electra: Path, tmp_path: Path) -> None:
    opened = open_trained(electra, device="cpu")
    shown = json.loads(minitf("inspect", "replaced", electra, "the king", "--json").stdout)["result"]["texts"][0][
        "tokens"
    ]
    task: Any = opened.task()
    ids = torch.tensor([[one["id"] for one in shown]])
    expected = opened.model.logits(opened.model(Tokens(ids)).y)[0, :, 0].sigmoid()
    assert [one["p"] for one in shown] == pytest.approx(expected.tolist(), abs=1e-6)
    assert not any(one["replaced"] for one in shown)
    long = "the old king saw a small house and went home"
    seeds = [
        json.loads(minitf("inspect", "replaced", electra, long, "--seed", str(n), "--json").stdout)["result"]
        for n in (1, 1, 2)
    ]
    assert seeds[0] == seeds[1] != seeds[2]
    tokens = seeds[0]["texts"][0]["tokens"]
    assert any(one["replaced"] for one in tokens)
    assert all(one["replaced"] == (one["token"] != one["original"]) for one in tokens)
    expected = task.replaced_probabilities(Tokens(torch.tensor([[one["id"] for one in tokens]])))[0]
    assert [one["p"] for one in tokens] == pytest.approx(expected.tolist(), abs=1e-6)
    result, figure = figures.pictured("inspect", "replaced", electra, long, "the king", "--seed", "1")
    assert result["texts"][0] == seeds[0]["texts"][0]
    panels = figures.maps(figure)
    assert [panel.title for panel in panels] == ["text 1", "text 2"]
    for panel, text in zip(panels, result["texts"], strict=True):
        rows = [
            label(one["token"]) + (f" ({label(one['original'])})" if one["replaced"] else "") for one in text["tokens"]
        ]
        assert panel.values.tolist() == [[one["p"] for one in text["tokens"]]]
        assert {
            row: name for row, name in enumerate(figure_caption(row, 18) for row in rows) if row in panel.columns
        } == panel.columns
        assert (panel.rows, panel.colors) == ({0: "p"}, ("Blues", 0, 1))
        assert panel.marks == {"square": {(0, n) for n, one in enumerate(text["tokens"]) if one["replaced"]}}
    assert figures.colorbar(figure) == ("probability that the token was replaced", (0, 1))
    assert "square: replaced" in figures.texts(figure)


def test_a_run_begins_with_the_discriminators_weights_and_the_other_way_round(electra: Path, tmp_path: Path) -> None:
    def begun(name: str, source: Path, objective: str) -> Path:
        (tmp_path / f"{name}.yaml").write_text(
            f"data: {{train: {DATA / 'tiny.txt'}}}\nmodel: {{init_from: {source}}}\n"
        )
        slow = (
            "train.steps=1",
            "train.batch_size=2",
            "optimizer.lr=1e-10",
            "optimizer.weight_decay=0",
            "train.context=16",
        )
        return trained(tmp_path / name, *slow, f"objective={objective}", recipe=tmp_path / f"{name}.yaml")

    source = load_file(electra / "model.safetensors")
    body = [name for name in source if not name.startswith("head.")]
    masked = begun("masked", electra, "masked")
    softmax = begun("softmax", masked, "{kind: replaced_token, loss: softmax, tying: none}")
    binary = begun("binary", softmax, "replaced_token")
    for run in (masked, softmax, binary):
        found = load_file(run / "model.safetensors")
        assert all(torch.allclose(found[name], source[name], atol=1e-6) for name in body)
        assert ("head.dense.weight" in found) == (run == binary)
    recipe, two_stages = (
        tmp_path / "masked.yaml",
        "objective={kind: replaced_token, tying: none, generator_width: 1, generator_steps: 1}",
    )
    message = (
        "two-stage training replaces the weights of model.init_from by the generator's; use 0, or remove"
        " model.init_from"
    )
    refused(minitf("pretrain", recipe, two_stages, "train.steps=9"), message, exit_code=3)
    refused(
        minitf("inspect", "replaced", masked, "the king"),
        "was trained with objective masked, which detects no",
        exit_code=2,
    )


def test_detection_is_a_dense_layer_with_gelu_before_one_logit() -> None:
    torch.manual_seed(0)
    head, hidden = DetectionHead(64, 0.02), seeded(5, 64).float()
    assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not head.dense.bias.any()
    assert not head.linear.bias.any()
    with torch.no_grad():
        expected = gelu((hidden @ head.dense.weight.T).numpy()) @ head.linear.weight.numpy().T
        np.testing.assert_allclose(head(hidden).numpy(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="a detection head has no vocabulary"):
        head(hidden, torch.tensor([1]))


def test_a_network_of_the_objective_is_converted_too(tmp_path: Path) -> None:
    """ELECTRA's generator has the attention of the model; its weights are kept, and the new run has them."""
    model = tiny_model("encoder")
    done = minitf(
        "pretrain",
        TINY,
        model,
        "objective=replaced_token",
        *QUIET,
        "train.steps=2",
        "-d",
        str(tmp_path / "electra"),
        "-q",
    )
    assert done.exit_code == 0, done.stderr
    done = minitf(
        "convert",
        tmp_path / "electra",
        "model.attention={kind: window, window: 2}",
        "-d",
        tmp_path / "window",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    envelope = json.loads(done.stdout)
    original, converted = (open_trained(tmp_path / name, device="cpu").task() for name in ("electra", "window"))
    before, after = (
        {name: t for name, t in one.state_dict().items() if "generator" in name} for one in (original, converted)
    )
    assert set(after) == set(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    evaluated = json.loads(minitf("evaluate", str(tmp_path / "window"), "--json").stdout)["metrics"]
    assert evaluated["loss.generator"] == pytest.approx(envelope["metrics"]["loss.generator"], abs=1e-5)
