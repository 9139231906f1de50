"""Numbers that go wrong: each row of the table of faults is a case whose id begins with the row's number.

A poisoned text stands for a step that goes wrong by itself: whoever reads a certain byte gets a loss that is not a
number, so the fault depends on the text alone, as a real one does, and comes back after an interruption.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import DATA, QUIET, TINY, minitf, tiny_model, told, trained
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.tokenized import open_data
from mini_tf.jobs.assembling import build
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.objectives import LossSums
from mini_tf.objectives._token_loss import TokenLoss
from mini_tf.recipe.kinds import listing
from mini_tf.recipe.reading import read
from mini_tf.run import tensors
from mini_tf.run.disk import Disk
from mini_tf.run.metric_files import read_lines
from mini_tf.training.loop import train
from mini_tf.training.machine import device
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import build as build_optimizer

EXPLOSIVE = (
    "model={kind: decoder, d_model: 32, n_layers: 4, n_heads: 2, norm_place: none, activation: relu2}",
    *("optimizer.clip=0", "schedule={kind: constant, warmup: 6}", "train.micro_batch_size=2", "log.every_steps=1"),
)
"""Without norms the activations grow with every layer, and faster with every step."""
LATE = (*EXPLOSIVE, "optimizer.lr=0.07", "checkpoint.every_steps=5", "eval.every_steps=5", "runtime.precision=fp32")
EARLY = (*EXPLOSIVE, "model.init_std=0.8", "optimizer.lr=0.3", "schedule.warmup=0", "runtime.precision=bf16")
"""At step 1: behind three layers activations are near 1e27, whose squares no float can hold."""
FILES = ("metrics.jsonl", "model.safetensors")
PAIRS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 10%}}",
    tiny_model("encoder_decoder"),
    "eval.translations=0",
)
SKIP = ("train.on_nonfinite=skip", "train.steps=16", "train.batch_size=4", "eval.every_steps=8", "log.every_steps=3")


def lines_of(run: Path) -> list[dict[str, Any]]:
    return list(read_lines(run / "metrics.jsonl"))


def record_of(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "run.json").read_text())
    return record


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that diverged some checkpoints after its start, and what it said."""
    run = tmp_path_factory.mktemp("diverged") / "late"
    done = minitf("pretrain", TINY, *QUIET, *LATE, "-d", run)
    assert (done.exit_code, done.stdout) == (7, "")
    return run, told(done.stderr)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run in half precision that diverged before its first checkpoint."""
    run = tmp_path_factory.mktemp("diverged") / "early"
    done = minitf("pretrain", TINY, *QUIET, *EARLY, "-d", run)
    assert (done.exit_code, done.stdout) == (7, "")
    return run, told(done.stderr)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Bytes by what the loss of a micro-batch that reads one of them in its first column is multiplied with."""
    factors: dict[str, float] = {}
    forward = TokenLoss.forward

    def poisoned_forward(self: TokenLoss, batch: Batch, state: Any = None) -> LossSums:
        sums = forward(self, batch, state)
        if not self.training:
            return sums
        for byte, factor in factors.items():
            read = batch.inputs if batch.source is None else batch.source
            if (read.ids[:, 0] == 4 + ord(byte)).any():
                sums = sums._replace(parts={name: part * factor for name, part in sums.parts.items()})
        return sums

    monkeypatch.setattr(TokenLoss, "forward", poisoned_forward)
    return factors


@pytest.mark.parametrize("which", [pytest.param("late", id="N1-late"), pytest.param("early", id="N1-early")])
def test_a_run_that_diverges_names_the_step_and_keeps_it(which: str, request: pytest.FixtureRequest) -> None:
    run, said = request.getfixturevalue(which)
    facts = json.loads((run / "diverged" / "facts.json").read_text())
    record, last = record_of(run), lines_of(run)[-1]
    assert said.splitlines()[-1].startswith(f"{facts['message']}; ")
    assert facts["message"].startswith(f"step {facts['step']}: {facts['what']} (")
    assert "but must be finite" in facts["what"]
    assert f"`minitf inspect crash {run}` replays the step\n" in said
    assert (record["state"], record["exit_code"], record["error"]) == ("diverged", 7, facts["message"])
    assert (last["step"], last["diverged"]) == (facts["step"], True)
    assert last["not_finite"]
    assert all(last[name] is None for name in last["not_finite"])
    assert {path.name for path in (run / "diverged").iterdir()} == {
        "facts.json",
        "model.safetensors",
        "state.safetensors",
    }
    assert list(run.glob(".tmp-*")) == []
    assert 1 <= len(facts["documents"]) <= 100
    assert facts["setup"]["micro_batch_size"] == 2


def test_the_weights_of_a_dump_are_those_before_the_step(late: tuple[Path, str], tmp_path: Path) -> None:
    """N1: the bad step has not touched them."""
    run, _ = late
    step = json.loads((run / "diverged" / "facts.json").read_text())["step"]
    short = trained(
        tmp_path / "short", *LATE, f"train.steps={step - 1}"
    )  # the constant schedule does not depend on the end
    before = tensors.read(short / "checkpoints" / f"step-{step - 1:08d}" / "model.safetensors")
    kept = tensors.read(run / "diverged" / "model.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())


def test_the_same_command_continues_from_the_last_checkpoint_and_diverges_alike(late: tuple[Path, str]) -> None:
    """N1: last good checkpoint intact."""
    run, said = late
    step = json.loads((run / "diverged" / "facts.json").read_text())["step"]
    before = {path: path.read_bytes() for path in [run / "metrics.jsonl", *(run / "diverged").iterdir()]}
    again = minitf("pretrain", TINY, *QUIET, *LATE, "-d", run)
    assert again.exit_code == 7
    assert f"continuing {run} from step {(step - 1) // 5 * 5}" in again.stderr
    assert again.stderr.splitlines()[-1] == said.splitlines()[-1]
    facts = run / "diverged" / "facts.json"
    assert all(path.read_bytes() == data for path, data in before.items() if path != facts)
    assert _without_clock(facts.read_bytes()) == _without_clock(before[facts])


def _without_clock(facts: bytes) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(facts)
    del read["counters"]["seconds"]
    return read


def test_a_disk_that_is_full_hides_no_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N1: the dump is the lesser thing."""
    write = Disk.write

    def full(self: Disk, path: Path, data: bytes) -> None:
        if "diverged" in str(path.parent.name):
            raise OSError(28, "No space left on device", str(path))
        write(self, path, data)

    monkeypatch.setattr(Disk, "write", full)
    done = minitf("pretrain", TINY, *QUIET, *EARLY, "-d", tmp_path / "run")
    assert done.exit_code == 7
    assert "could not be saved for `minitf inspect crash`: [Errno 28] No space left on device" in told(done.stderr)
    assert record_of(tmp_path / "run")["state"] == "diverged"
    assert not [path for path in (tmp_path / "run").iterdir() if "diverged" in path.name]


@pytest.mark.parametrize("pack", [pytest.param(pack, id=f"N1-documents-{pack}") for pack in ("concat", "docs", "none")])
def test_the_documents_of_rows_are_those_whose_tokens_they_read(pack: str) -> None:
    parts = parts_of(f"data.pack={pack}")
    packing = parts.train
    owner = np.concatenate(
        [np.full(last - first, n) for n in range(packing.store.n_documents) for first, last in [packing.store.span(n)]]
    )
    ids = np.asarray(packing.store.ids)[: len(owner)]
    for row in range(0, packing.n_rows, 7):
        for epoch in (0, 1):
            one = np.array([row])
            taken = packing.take(one, epoch, np.zeros(1, np.uint64))
            found = packing.documents(one, epoch).tolist()
            real = taken.ids.shape[1] if taken.segments is None else int((taken.segments[0] != 0).sum())
            length = real - packing.shape.lookahead
            positions = (
                (np.lib.stride_tricks.sliding_window_view(ids, length) == taken.ids[0, :length]).all(1).nonzero()[0]
            )
            assert found in [sorted(set(owner[i : i + length].tolist())) for i in positions]


def test_a_text_without_documents_names_rows(tmp_path: Path) -> None:
    """N1: a raw stream knows no documents."""
    done = minitf("pretrain", TINY, *QUIET, *EARLY, "data.split=tail 10%", "-d", tmp_path / "run")
    assert done.exit_code == 7
    assert ", rows " in told(done.stderr).splitlines()[-1]


@pytest.mark.parametrize(
    ("byte", "given"),
    [pytest.param("e", SKIP, id="N3-skip"), pytest.param("s", (*PAIRS, *SKIP), id="N3-skip-of-pairs")],
)
def test_skipped_steps_are_counted_told_and_the_same_after_an_interruption(
    byte: str, given: tuple[str, ...], poisoned: dict[str, float], tmp_path: Path
) -> None:
    poisoned[byte] = math.nan
    done = minitf("pretrain", TINY, *QUIET, *given, "-d", tmp_path / "whole")
    assert done.exit_code == 0, done.stderr
    whole = lines_of(tmp_path / "whole")
    skipped, part = [line for line in whole if "skipped" in line], "next_token" if given == SKIP else "seq2seq"
    assert [line["skipped"] for line in skipped] == list(range(1, len(skipped) + 1))
    assert 3 <= len(skipped) <= 13
    for line in skipped:
        assert (line["loss"], line["not_finite"]["loss"]) == (None, "nan")  # N6
        assert (
            f"warning: step {line['step']}: the loss '{part}' is nan, but must be finite; the step is skipped ("
            in done.stderr
        )
    assert f"{len(skipped)} of 16 steps were skipped: their loss or gradient was not finite\n" in told(done.stderr)
    assert all(
        math.isfinite(line["train.loss"]) for line in whole if "val.loss" in line
    )  # of the steps that were taken
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "free", lambda self, folder: 0 if (folder / "step-00000008").exists() else 1 << 40)
        assert minitf("pretrain", TINY, *QUIET, *given, "-d", tmp_path / "run").exit_code == 6
    again = minitf("pretrain", TINY, *QUIET, *given, "-d", tmp_path / "run")
    assert again.exit_code == 0
    assert f"{len(skipped)} of 16 steps were skipped" in again.stderr
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("given", "step"),
    [
        pytest.param((*SKIP, "train.most_skips=3"), 4, id="N3-too-many"),
        pytest.param(("train.steps=16",), 1, id="N3-never-the-default"),
    ],
)
def test_too_many_skips_in_a_row_are_a_divergence(
    given: tuple[str, ...], step: int, poisoned: dict[str, float], tmp_path: Path
) -> None:
    poisoned |= {byte: math.inf for byte in map(chr, range(32, 127))}
    done = minitf("pretrain", TINY, *QUIET, *given, "-d", tmp_path / "run")
    assert done.exit_code == 7
    after = ", after 3 skipped in a row" if step == 4 else ""
    assert (
        told(done.stderr)
        .splitlines()[-1]
        .startswith(f"step {step}{after}: the loss 'next_token' is inf, but must be finite")
    )
    assert [line.get("skipped") for line in lines_of(tmp_path / "run")] == [1, 2, 3, None][4 - step :]
    assert json.loads(minitf("inspect", "crash", tmp_path / "run", "--json").stdout)["result"]["reproduced"] is True


@pytest.mark.parametrize("which", [pytest.param("late", id="N6-gradient"), pytest.param("early", id="N6-loss")])
def test_the_raw_value_of_a_step_is_written_and_nothing_in_its_place(
    which: str, request: pytest.FixtureRequest
) -> None:
    run, _ = request.getfixturevalue(which)
    *before, last = (run / "metrics.jsonl").read_text().splitlines()
    name = "grad_norm" if which == "late" else "loss"
    assert json.loads(last)[name] is None
    assert json.loads(last)["not_finite"][name] in ("nan", "inf")
    assert not any("diverged" in line or f'"{name}": null' in line for line in before)


@pytest.mark.parametrize("bears", [pytest.param(True, id="N4-spike"), pytest.param(False, id="N4-stop_above")])
def test_a_loss_that_jumps_is_told_and_ends_the_run_only_if_asked(
    bears: bool, poisoned: dict[str, float], tmp_path: Path
) -> None:
    run, limit = tmp_path / "run", () if bears else ("train.stop_above=15",)
    poisoned["h"] = 20.0
    done = minitf(
        "pretrain",
        TINY,
        *QUIET,
        "train.steps=60",
        "train.batch_size=1",
        "eval.every_steps=60",
        "log.every_steps=1",
        *limit,
        "-d",
        run,
    )
    said = told(done.stderr)
    losses = [line["loss"] for line in lines_of(run)]
    high = next(i for i, loss in enumerate(losses) if loss > 15)
    if bears:
        assert done.exit_code == 0
        assert said.count("the loss jumps to") == 1  # not once more before the next evaluation
        first = next(
            i
            for i, loss in enumerate(losses)
            if i >= 10 and loss > max(1.5 * np.mean(losses[:i]), np.mean(losses[:i]) + 0.5)
        )
        assert (
            f"warning: step {first + 1}: the loss jumps to {losses[first]:.3g}; mean since the last evaluation: "
            in said
        )
    else:
        assert done.exit_code == 7
        assert len(losses) == high + 1  # the raw value is written
        assert said.splitlines()[-1].startswith(
            f"step {high + 1}: the loss is {losses[high]:.6g}, but train.stop_above is 15 (documents "
        )
        assert said.endswith("; raise train.stop_above if such a loss is normal\n")
        replayed = " ".join(minitf("inspect", "crash", run).stdout.split())
        assert "it diverges again in the same way" in replayed
        assert "try: a higher train.stop_above (it is 15), if such a loss is expected" in replayed
        assert "on_nonfinite" not in replayed
        assert record_of(run)["state"] == "diverged"


@pytest.mark.parametrize("precision", [pytest.param("fp16", id="N5-scale-and-skips")])
def test_an_fp16_scale_is_the_same_after_an_interruption(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU stands for the GPU that computes so."""
    monkeypatch.setattr(device, "available_precisions", lambda device: ["fp32", "bf16", "fp16"])
    recipe = (
        f"runtime.precision={precision}",
        "train.steps=8",
        "train.batch_size=2",
        "eval.every_steps=2",
        "optimizer.lr=1e-3",
        "model.init_std=1.5",
        "train.context=16",
        "eval.tokens=64",
    )
    whole = trained(tmp_path / "whole", *recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "free", lambda self, folder: 0 if (folder / "step-00000004").exists() else 1 << 40)
        assert minitf("pretrain", TINY, *QUIET, *recipe, "-d", tmp_path / "run").exit_code == 6
    trained(tmp_path / "run", *recipe)
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
    skipped = [line["skipped"] for line in lines_of(whole) if "skipped" in line]
    [last] = [json.loads(path.read_text()) for path in whole.glob("checkpoints/step-00000008/counters.json")]
    assert skipped == list(range(1, last["skips"] + 1))
    assert len(skipped) > 0
    assert float.fromhex(last["loss_scale"]) == 2.0 ** (16 - len(skipped))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=5")


@pytest.mark.parametrize(
    ("options", "like", "note"),
    [
        pytest.param(("Once", "--temperature", "0"), ("Once", "--greedy"), "", id="N7-zero-is-greedy"),
        pytest.param(("Once", "--temperature", "1e-300"), ("Once", "--greedy"), "", id="N7-nearly-zero"),
        pytest.param(
            ("Once", "--top-k", "100000"), ("Once", "--top-k", "260"), "", id="N7-top-k-beyond-the-vocabulary"
        ),
        pytest.param(
            ("x" * 80,), ("x" * 48,), "the prompt has 80 tokens; the first 32 are truncated", id="N7-long-prompt"
        ),
    ],
)
def test_the_edges_of_sampling_mean_what_they_say(
    decoder: Path, options: tuple[str, ...], like: tuple[str, ...], note: str
) -> None:
    [done, same] = (
        minitf("generate", decoder, *given, "--max-new-tokens", "8", "--seed", "3") for given in (options, like)
    )
    assert (done.exit_code, done.stdout) == (0, same.stdout)
    assert note in told(done.stderr)


@pytest.mark.parametrize("prompt", [pytest.param("", id="N7-empty-prompt")])
def test_an_empty_prompt_begins_a_document(prompt: str, decoder: Path) -> None:
    done = minitf("generate", decoder, prompt, "--greedy", "--json", "--max-new-tokens", "4")
    assert (done.exit_code, json.loads(done.stdout)["result"]["prompt"]) == (0, "")


MODELS = {"decoder": (), "encoder": (tiny_model("encoder"),), "encoder_decoder": PAIRS}


@pytest.mark.parametrize("kind", [pytest.param(kind, id=f"N7-overflow-{kind}") for kind in MODELS])
def test_a_model_whose_hidden_states_overflow_writes_nothing(kind: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *MODELS[kind], "train.steps=1")
    weights = tensors.read(run / "model.safetensors")
    for name, tensor in weights.items():
        if name in ("stack.norm.weight", "embedding.tokens.weight"):
            tensor.fill_(3e38)  # finite itself
    publish(run, weights)
    overflow = "embedding.tokens.weight contains values up to 3e+38: hidden states overflow"
    for options in ((), ("--json",)):
        done = minitf("generate", run, "Once [MASK]", *options)
        assert done.exit_code == 5
        assert done.stderr == f"{run}: {overflow}; choose an earlier checkpoint: --step N\n"
        assert (json.loads(done.stdout)["ok"] is False) if options else done.stdout == ""


def publish(run: Path, weights: dict[str, Tensor]) -> None:
    """Other weights in place of model.safetensors, as if they had been trained."""
    data = b"".join(tensors.Serialized(weights))
    record = record_of(run)
    record["model"]["sha256"] = hashlib.sha256(data).hexdigest()
    (run / "model.safetensors").write_bytes(data)
    (run / "run.json").write_text(json.dumps(record))


def parts_of(*overrides: str) -> Parts:
    recipe = read(TINY, list(overrides)).recipe
    text = open_data(recipe.data, recipe.tokenizer, recipe.objective)
    return build(recipe, text, Setup(micro_batch_size=8))


OBJECTIVES = [kind for kind in listing("objectives") if kind in ("next_token", "masked")]


def test_any_split_of_pairs_into_micro_batches_gives_the_same_loss_and_gradient() -> None:
    """N8: of pairs the rows are as long as the longest of the micro-batch, on either side."""
    given = (*PAIRS, "objective.label_smoothing=0.1", "train.batch_size=12")
    results = [_first_step(parts_of(*given, f"train.micro_batch_size={size}")) for size in (12, 4, 1)]
    by_tokens = [
        _first_step(parts_of(*PAIRS, "train.batch_tokens=300", f"train.micro_batch_size={size}")) for size in (30, 4, 1)
    ]
    for whole, *others in (results, by_tokens):
        assert len({len(counts) for _, _, counts in (whole, *others)}) == 1 + len(others)
        assert {sum(counts) for _, _, counts in others} == {sum(whole[2])}
        for loss, gradient, _ in others:
            assert loss == pytest.approx(whole[0], abs=1e-6)
            assert float((gradient - whole[1]).norm()) <= 1e-5 * float(whole[1].norm())


@pytest.mark.parametrize("objective", [pytest.param(kind, id=f"N8-{kind}") for kind in OBJECTIVES])
@pytest.mark.parametrize("pack", ["concat", "none"])
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(objective: str, pack: str) -> None:
    """Rows of unequal length have unequal numbers of targets, masked ones all the more."""
    reader = "encoder" if objective == "masked" else "decoder"
    given = (
        f"objective={{kind: {objective}}}",
        tiny_model(reader),
        f"data.pack={pack}",
        "model.dropout_rate=0",
        "train.batch_size=12",
    )
    results = [_first_step(parts_of(*given, f"train.micro_batch_size={size}")) for size in (12, 4, 1)]
    counts = {tuple(result[2]) for result in results[1:]}
    assert all(len(set(of_a_split)) > 1 for of_a_split in counts) == (pack == "none")
    whole_loss, whole, _ = results[0]
    for loss, gradient, _ in results[1:]:
        assert loss == pytest.approx(whole_loss, abs=1e-6)
        assert float((gradient - whole).norm()) <= 1e-5 * float(whole.norm())


def _first_step(parts: Parts) -> tuple[float, Tensor, list[int]]:
    """Its loss, the gradient of all weights, and how many targets each micro-batch has."""
    training = training_of(parts, [], build_optimizer(parts.recipe.optimizer, parts.model))
    caught: list[Tensor] = []
    training.optimizer.step = lambda lr, factor=1.0: caught.extend(
        p.grad.flatten().clone() for p in parts.task.parameters()
    )  # type: ignore
    report = next(train(training))
    targets = [len(batch.labels) for batch in training.feed.micro_batches(0)]
    return report.loss, torch.cat(caught), targets
