"""Every objective keeps to the contract of objectives; and the contract finds what is wrong with one that does not."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from strangers import FOLDER
from test_datasets_contract import with_rows
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, _token_loss
from mini_tf.papers.electra import replacement
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import objectives as contract
from mini_tf.testing import run_all
from mini_tf.testing.kinds import kinds_in

POOLS = [("classify", {"pool": pool}) for pool in ("first", "last", "max", "attention")]
POOLS += [
    (
        "classify",
        {
            "wide": {
                "order": 2,
                "rows": 64,
                "characters": (2, 3),
                "log_counts": True,
                "class_ratios": True,
                "own_loss": True,
            }
        },
    ),
    ("tag", {"wide": {"window": 1, "rows": 64}}),
    ("tag", {"wide": {"unit": "word", "order": 3, "rows": 64}}),
]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *POOLS,
    ("classify", {"class_weights": "balanced"}),
    ("tag", {"class_weights": {"O": 0.2}}),
    ("masked", {"scheme": "whole_word"}),
    ("masked", {"scheme": "span", "replace": (0.0, 1.0, 0.0)}),
    ("denoising", {"noise": {"kind": "spans", "rate": 0.4}, "target": "spans"}),
    ("denoising", {"noise": ({"kind": "mask"}, {"kind": "delete"}, {"kind": "rotate"})}),
    ("prefix", {"prefix_rate": (0.2, 0.5)}),
    ("replaced_token", {"tying": "all", "generator_width": 1.0, "disallow_correct": True}),
    ("replaced_token", {"loss_on": "masked", "loss": "softmax", "generator_depth": 0.5, "tying": "none"}),
    ("replaced_token", {"proposal": "unigram", "loss": "softmax_copy", "scheme": "whole_word"}),
    ("replaced_token", {"proposal": "mask", "loss_on": "masked", "loss": "softmax"}),
]
VARIANTS = [(kind, given) for kind, given in VARIANTS if kind in listing("objectives")]


KINDS = [with_rows(settings_of("objectives", kind).DATASET, kind, {}) for kind in listing("objectives")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "given"), [*KINDS, *VARIANTS], ids=str)
def test_every_objective_keeps_to_the_contract(kind: str, given: dict[str, Any]) -> None:
    run_all(contract.cases(settings_of("objectives", kind)(**given)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "given"),
    [("masked", {}), ("replaced_token", {}), ("replaced_token", {"loss_on": "masked", "loss": "softmax"})],
    ids=str,
)
def test_a_loss_that_counts_ignored_targets_is_found_out(
    kind: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that are another token, as if `IGNORED` were one."""
    padded = _token_loss.pad_targets
    for module in (_token_loss, replacement):
        monkeypatch.setattr(
            module, "pad_targets", lambda *given: replace(batch := padded(*given), labels=batch.labels.clamp(min=0))
        )
    with pytest.raises(AssertionError, match="must not depend on ignored targets"):
        contract.ignored_targets_change_nothing(settings_of("objectives", kind)(**given))


def test_a_task_that_changes_the_model_or_leaves_something_untrained_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with kinds_in(FOLDER):
        settings: Any = settings_of("objectives", "margin")()
        kind: Any = sys.modules[type(settings).__module__].Margin
        task = kind.task

        def idle(self: Any, model: nn.Module) -> nn.Module:
            made = task(self, model)
            made.idle = nn.Linear(2, 2)
            return made  # type: ignore[no-any-return]

        monkeypatch.setattr(kind, "task", idle)
        with pytest.raises(
            AssertionError, match=r"must have a gradient: \['objective.idle.bias', 'objective.idle.weight'\]"
        ):
            contract.eight_rows_are_overfitted(settings)

        monkeypatch.setattr(
            kind, "task", lambda self, model: [p.data.add_(1) for p in model.parameters()] and task(self, model)
        )
        with pytest.raises(AssertionError, match="the task must not change the model"):
            contract.task_does_not_change_the_model(settings)

        drawn = torch.Generator()  # not torch's own

        def unseeded(self: Any, model: nn.Module) -> nn.Module:
            made = idle(self, model)
            made.idle.weight.data.normal_(generator=drawn)
            return made

        monkeypatch.setattr(kind, "task", unseeded)
        with pytest.raises(AssertionError, match="the same seed must give the same weights"):
            contract.task_does_not_change_the_model(settings)


Change = Callable[[Batch, Rows], Batch]


class Spoilt:
    """An objective of minitf with one fault: `prepare` changes its batches, `forward` its sums."""

    def __init__(
        self,
        kind: str,
        prepare: Change | None = None,
        forward: Any = None,
        built: Any = MappingProxyType({}),
        given: Any = MappingProxyType({}),
        **declared: Any,
    ) -> None:
        self.kind, self.prepare, self.forward, self.built = kind, prepare, forward, built
        self.given, self.declared = given, declared

    def settings(self) -> Any:
        spoilt: Any = self

        class Settings(settings_of("objectives", self.kind)):  # type: ignore[misc]
            def build(self, vocabulary: Any, labels: Any = None) -> Any:
                built = super().build(vocabulary, labels)
                prepare, task = built.prepare, built.task
                if spoilt.prepare is not None:
                    built.prepare = lambda rows: spoilt.prepare(prepare(rows), rows)
                if spoilt.forward is not None:
                    built.task = lambda model: changed_task(task(model), spoilt.forward)
                vars(built).update(spoilt.built)
                return built

        for name, value in self.declared.items():
            setattr(Settings, name, value)
        return Settings(**self.given)


def changed_task(task: nn.Module, change: Any) -> nn.Module:
    forward = task.forward
    task.forward = lambda batch, state=None: change(task, forward, batch, state)
    return task


def scaled(factor: float, *modes: bool) -> Any:
    """The loss times `factor`, in training (True), in evaluation (False) or in both."""

    def forward(task: nn.Module, right: Any, batch: Batch, state: Any) -> LossSums:
        sums: LossSums = right(batch, state)
        return (
            sums._replace(parts={name: part * factor for name, part in sums.parts.items()})
            if task.training in modes
            else sums
        )

    return forward


def without_penalty(task: nn.Module, right: Any, batch: Batch, state: Any) -> LossSums:
    sums: LossSums = right(batch, state)
    return sums._replace(parts={name: part for name, part in sums.parts.items() if name != "penalty"})


def shows_in_training(task: nn.Module, right: Any, batch: Batch, state: Any) -> LossSums:
    ids = batch.inputs.ids.flatten().scatter(0, batch.target_positions, batch.labels).view_as(batch.inputs.ids)
    sums: LossSums = right(with_inputs(batch, ids=ids) if task.training else batch, state)
    return sums


def with_inputs(batch: Batch, **changed: Any) -> Batch:
    return replace(batch, inputs=replace(batch.inputs, **changed))


def attending_to_all(batch: Batch, rows: Rows) -> Batch:
    positions = batch.inputs.token_positions
    assert positions is not None
    return with_inputs(batch, token_positions=replace(positions, orders=torch.full(batch.inputs.ids.shape, 99)))


def with_documents_mixed(batch: Batch, rows: Rows) -> Batch:
    positions = batch.inputs.token_positions
    assert positions is not None
    assert positions.segments is not None
    return with_inputs(batch, token_positions=TokenPositions.packed(positions.segments.clamp(max=1)))


def attending_to_the_next_document(batch: Batch, rows: Rows) -> Batch:
    """The segments are right, but the model gets others."""
    mixed = with_documents_mixed(batch, rows).inputs.token_positions
    return replace(batch, extras={"positions": mixed})  # type: ignore[dict-item]


def with_other_positions(task: nn.Module, right: Any, batch: Batch, state: Any) -> LossSums:
    sums: LossSums = right(with_inputs(batch, token_positions=batch.extras["positions"]), state)
    return sums


def with_the_whole_text_as_source(batch: Batch, rows: Rows) -> Batch:
    return replace(batch, source=Tokens(torch.from_numpy(rows.ids).long()))


def doubled(part: str) -> Change:
    return lambda batch, rows: replace(batch, counts=batch.counts | {part: 2 * batch.counts[part]})


def counts(**given: int) -> Change:
    return lambda batch, rows: replace(batch, counts=batch.counts | given)


def labels(change: Callable[[Tensor], Tensor]) -> Change:
    return lambda batch, rows: replace(batch, labels=change(batch.labels))


def sums(change: Callable[[LossSums, Batch], LossSums]) -> Any:
    return lambda task, right, batch, state: change(right(batch, state), batch)


def loss(change: Callable[[Tensor, Batch], Tensor]) -> Any:
    """The same sums with another loss."""
    return sums(lambda sums, batch: sums._replace(parts={"margin": change(sums.parts["margin"], batch)}))


def metrics(**given: Any) -> Any:
    return sums(lambda sums, batch: sums._replace(metrics=given))


def margin(prepare: Change | None = None, forward: Any = None) -> Spoilt:
    """An objective of an outside package whose loss is no cross-entropy, with a fault."""
    return Spoilt("margin", prepare, forward)


def mean_over_targets(loss: Tensor, batch: Batch) -> Tensor:
    return loss / len(batch.labels)


def plus_ids(loss: Tensor, batch: Batch) -> Tensor:
    return loss + batch.inputs.ids.sum()


def plus_noise(loss: Tensor, batch: Batch) -> Tensor:
    return loss + torch.rand(())


def with_outputs(sums: LossSums, batch: Batch) -> LossSums:
    return sums._replace(outputs=torch.ones(1))


def with_targets_in_padding(batch: Batch, rows: Rows) -> Batch:
    return replace(batch, target_positions=torch.arange(len(batch.labels)))


def without_positions(batch: Batch, rows: Rows) -> Batch:
    return with_inputs(batch, token_positions=None)


def without_counts(batch: Batch, rows: Rows) -> Batch:
    return replace(batch, counts={"tokens": 9})


def with_ids_by_company(batch: Batch, rows: Rows) -> Batch:
    return with_inputs(batch, ids=batch.inputs.ids + len(rows))


def with_all_ids(batch: Batch, rows: Rows) -> Batch:
    return with_inputs(batch, ids=torch.from_numpy(rows.ids).long())


ONE = (torch.tensor(1.0), 1)
ATTENDING_ASIDE = Spoilt("masked", attending_to_the_next_document, with_other_positions, given={"mask_rate": 0.5})
KEPT = {"replace": (0.0, 0.0, 1.0)}
T5 = {"noise": {"kind": "spans", "rate": 0.4}, "target": "spans"}
FAULTS: list[tuple[str, Spoilt, str]] = [
    ("micro_batches_change_nothing", margin(counts(margin=8)), "counts: margin depends"),
    ("micro_batches_change_nothing", margin(None, loss(mean_over_targets)), "parts: margin depends"),
    ("micro_batches_change_nothing", margin(None, metrics(accuracy=ONE)), "metrics: accuracy 0 depends"),
    ("padding_changes_nothing", margin(counts(tokens=72)), "counts: tokens must be all"),
    ("padding_changes_nothing", margin(with_targets_in_padding), "padding must not be a target"),
    ("padding_changes_nothing", margin(without_positions), "must have segments"),
    ("padding_changes_nothing", margin(None, loss(plus_ids)), "must not depend on padding"),
    ("prepare_is_pure", margin(labels(lambda y: y + torch.randint(9, ()))), "torch's global generator"),
    ("prepare_is_pure", margin(labels(lambda y: y + np.random.randint(9))), "numpy's global generator"),
    ("prepare_is_pure", margin(with_ids_by_company), "one by one: inputs must be equal"),
    ("prepare_is_pure", margin(counts(margin=8)), "one by one: counts must be equal"),
    ("parts_are_counted", margin(without_counts), "there must be one for the part margin"),
    ("parts_are_counted", margin(counts(margin=0)), "margin is 0, but the part of the loss is"),
    ("parts_are_counted", margin(None, loss(lambda loss, batch: loss[None])), "margin must be a scalar"),
    ("parts_are_counted", margin(None, metrics(hits=ONE)), r"must declare \['hits'\]"),
    ("parts_are_counted", margin(None, metrics(accuracy=(torch.tensor(1.0), -1))), "denominator of a metric"),
    ("parts_are_counted", margin(None, sums(with_outputs)), "outputs need a metric accumulator"),
    ("parts_are_counted", Spoilt("classify", doubled("classify")), "classify must be at most 8, one a row: 16"),
    ("parts_are_counted", Spoilt("denoising", built={"weights": {"denoisin": 50.0}}), r"\['denoisin'\] are not"),
    ("evaluation_is_repeatable", margin(None, loss(plus_noise)), "the loss must be deterministic"),
    ("half_precision_preserves_the_loss", margin(None, loss(lambda loss, _: loss.bfloat16())), "not in torch.bfloat16"),
    ("eight_rows_are_overfitted", margin(None, loss(lambda loss, _: loss + 1e4)), "after 5 steps the loss must be"),
    ("inputs_hide_the_targets", Spoilt("masked", with_all_ids), "visible_targets declares 0.1"),
    ("inputs_hide_the_targets", Spoilt("masked", forward=shows_in_training), "visible_targets declares 0.1"),
    ("inputs_hide_the_targets", Spoilt("masked", given=KEPT, built={"visible_targets": 0.0}), "declares 0"),
    ("inputs_hide_the_targets", Spoilt("next_token", SUPPORTS=frozenset({"bidirectional"})), "declares 0"),
    ("inputs_hide_the_targets", Spoilt("next_token", attending_to_all), "visible_targets declares 0"),
    ("inputs_hide_the_targets", Spoilt("denoising", with_the_whole_text_as_source, given=T5), "declares 0"),
    ("equal_logits_have_the_loss_log_v", Spoilt("next_token", doubled("next_token")), "the 52 targets, not 104"),
    (
        "equal_logits_have_the_loss_log_v",
        Spoilt("seq2seq", forward=scaled(2, True, False)),
        "3.68888 per target, not 7",
    ),
    ("equal_logits_have_the_loss_log_v", Spoilt("instruct", forward=scaled(0.5, False)), "instruct must be log V"),
    ("training_and_evaluation_have_the_same_loss", Spoilt("classify", forward=scaled(0.5, False)), "must be the same"),
    ("the_penalty_of_a_mixer_is_kept", Spoilt("tag", forward=without_penalty), "must be a part of the loss"),
    ("the_penalty_of_a_mixer_is_kept", Spoilt("masked", counts(penalty=8)), "number of tokens"),
    ("packed_documents_are_apart", Spoilt("next_token", with_documents_mixed), "must be those of the rows"),
    ("packed_documents_are_apart", ATTENDING_ASIDE, "must not depend on document 1 of its row"),
]


@pytest.fixture(scope="module")
def strangers() -> Iterator[None]:
    with kinds_in(FOLDER):
        yield


@pytest.mark.parametrize(("check", "fault", "message"), FAULTS)
def test_an_objective_with_a_fault_is_refused(
    check: str, fault: Spoilt, message: str, strangers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "STEPS", 5)
    with pytest.raises(AssertionError, match=message):
        getattr(contract, check)(fault.settings())


def test_targets_may_be_as_visible_as_declared() -> None:
    often = {"mask_rate": 0.5, "replace": (0.2, 0.0, 0.8)}
    contract.inputs_hide_the_targets(Spoilt("masked", given=often).settings())


def test_labels_may_be_missing() -> None:
    """NaN, as in a data set whose texts have some of several labels each."""
    missing = Spoilt(
        "regress", lambda batch, rows: replace(batch, labels=batch.labels.where(batch.labels > 0, torch.nan))
    )
    contract.prepare_is_pure(missing.settings())
