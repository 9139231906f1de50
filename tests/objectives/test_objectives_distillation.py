"""Distillation: the loss against the formula written out, and runs that need the teacher in training alone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import DATA, QUIET, TINY, cut_off, minitf, refused, tiny_model, trained
from safetensors import safe_open

from mini_tf.data.batch import Batch
from mini_tf.data.packing import Packing
from mini_tf.nn.layers import cross_entropy
from mini_tf.nn.layers.cross_entropy import IGNORED
from mini_tf.objectives._distillation import Distillation
from mini_tf.trained.evaluating import run_data
from mini_tf.trained.opening import Trained, open_trained
from mini_tf.training.evaluation import pack

FEW = (
    "tokenizer.kind=byte", "train={steps: 6, batch_size: 4, context: 24}", "eval.every_steps=null", "log.samples=0",
    "checkpoint={every_steps: 2, keep_last: 3}", "optimizer.lr=1e-2",
)  # fmt: skip
KINDS = {"next_token": "decoder", "masked": "encoder"}


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    normalized: np.ndarray = exponentials / exponentials.sum(-1, keepdims=True)
    return normalized


def written_out(logits: np.ndarray, of_teacher: np.ndarray, labels: np.ndarray, weight: float, t: float) -> float:
    p, q, teacher = softmax(logits), softmax(logits / t), softmax(of_teacher / t)
    cross_entropy = -np.log(p[np.arange(len(labels)), labels]).sum()
    return float((1 - weight) * cross_entropy + weight * t**2 * (teacher * np.log(teacher / q)).sum())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher of one step and a student of each objective."""
    folder = tmp_path_factory.mktemp("distillation")
    for kind, model in KINDS.items():
        teacher = trained(folder / kind, *FEW, tiny_model(model), "model.init_std=0.2", "train.steps=1")
        student = (*FEW, tiny_model(model), "model.d_model=16", f"tokenizer.path={teacher}")
        trained(folder / f"{kind}-student", *student, f"objective.teacher={teacher}", "objective.teacher_weight=0.7")
    return folder


def batch_of(trained: Trained, n: int = 6) -> Batch:
    store = run_data(trained)["val"]
    packing: Packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    return trained.objective.prepare(next(packing.eval_rows(n)))


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_tokens_is_the_formula_in_any_chunks(
    folder: Path, kind: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, teacher = (open_trained(folder / name, device="cpu") for name in (f"{kind}-student", kind))
    batch, weight = batch_of(student), 0.7
    labels = batch.labels.clone()
    labels[:3] = IGNORED
    batch, counted = replace(batch, labels=labels), labels != IGNORED
    at = slice(None) if batch.target_positions is None else batch.target_positions
    logits, of_teacher = (
        one.model.logits(one.model(batch.inputs).y.flatten(0, 1)[at][counted]).double().detach().numpy()
        for one in (student, teacher)
    )
    labels = labels[counted]
    expected = written_out(logits, of_teacher, labels.numpy(), weight, temperature)
    student.objective.teacher = teacher.task()
    student.objective.settings = student.objective.settings.model_copy(
        update={"teacher_weight": weight, "teacher_temperature": temperature}
    )
    task = student.objective.task(student.model).train()
    gradients = []
    for chunk in (cross_entropy.CHUNK, 1):
        monkeypatch.setattr(cross_entropy, "CHUNK", chunk)
        monkeypatch.setattr(cross_entropy, "FEWEST", 5 if chunk == 1 else 64)
        loss = task(batch, None).parts[kind]
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
        task.zero_grad()
        loss.backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in task.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        p = torch.from_numpy(logits).log_softmax(-1)
        in_evaluation = float(task.eval()(batch, None).parts[kind])
    assert in_evaluation == pytest.approx(-float(p.gather(1, labels[:, None]).sum()), rel=1e-5)


def test_the_loss_of_classes_is_the_formula(classifier: Path) -> None:
    teacher, student = (open_trained(classifier, device="cpu") for _ in range(2))
    with torch.no_grad():
        student.model.head.linear.weight.mul_(-0.5)
    batch = batch_of(student)
    logits, of_teacher = (one.task()(batch, None).outputs.double().detach().numpy() for one in (student, teacher))
    distillation = Distillation(teacher.task(), 0.3, 2.0)
    labels = batch.labels.numpy()
    loss = torch.tensor(-np.log(softmax(logits)[np.arange(len(labels)), labels]).sum())
    found = distillation.of_rows(loss, torch.from_numpy(logits), batch)
    assert float(found) == pytest.approx(written_out(logits, of_teacher, labels, 0.3, 2.0), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_a_run_has_the_teacher_which_only_training_needs(folder: Path, kind: str, tmp_path: Path) -> None:
    files = [path for path in (folder / f"{kind}-student").rglob("*.safetensors") if path.name == "model.safetensors"]
    width = [safe_open(path, "pt").get_slice("embedding.tokens.weight").get_shape()[1] for path in files]
    assert {*width} == {16}
    assert not [*(folder / f"{kind}-student").rglob("objective.safetensors")]
    gone = tmp_path / "outputs"
    shutil.copytree(folder, gone)
    shutil.rmtree(gone / kind)
    recipe = (gone / f"{kind}-student" / "resolved.yaml").read_text().replace(str(folder), str(gone))
    (gone / f"{kind}-student" / "resolved.yaml").write_text(recipe)
    assert minitf("evaluate", gone / f"{kind}-student").exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_cut_off_continues_to_the_same_bytes_or_not_at_all(
    folder: Path, kind: str, tmp_path: Path
) -> None:
    run = folder / f"{kind}-student"
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    cut_off(copy, 4, 6)
    done = minitf("pretrain", copy / "resolved.yaml", *QUIET, "-d", copy)
    assert done.exit_code == 0, done.stderr
    last = "checkpoints/step-00000006/optimizer.safetensors"
    for name in ("model.safetensors", "metrics.jsonl", last):
        assert (copy / name).read_bytes() == (run / name).read_bytes()
    cut_off(copy, 4, 6)
    teacher = Path(shutil.copytree(folder / kind, tmp_path / "teacher"))
    recipe = (copy / "resolved.yaml", f"objective.teacher={teacher}", *QUIET, "-d", copy)
    record = json.loads((teacher / "run.json").read_text())
    (teacher / "run.json").write_text(json.dumps(record | {"model": {**record["model"], "sha256": "0" * 64}}))
    refused(minitf("pretrain", *recipe), "was started with other contents of teacher", exit_code=5)
    shutil.rmtree(teacher)
    refused(minitf("pretrain", *recipe), "objective.teacher: no such run: ", exit_code=5)


def test_a_misspelt_teacher_gets_the_closest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "outputs" / "teacher", "train.steps=1")
    for name, hint in (("teecher", "did you mean teacher?"), ("x", "`minitf runs list` lists all runs")):
        done = minitf("pretrain", TINY, f"objective={{kind: next_token, teacher: {name}}}", *QUIET)
        refused(done, f"objective.teacher: no such run: {tmp_path / name}; {hint}; hf:ORGANIZATION/NAME", exit_code=5)
    assert [path.name for path in Path("outputs").iterdir()] == ["teacher"]


def test_a_teacher_that_predicts_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    def said(*arguments: str, exit_code: int = 3, words: tuple[str, ...] = ()) -> None:
        done = minitf("pretrain", *QUIET, TINY, *FEW, *arguments, "-d", tmp_path / "run")
        refused(done, *words, exit_code=exit_code)

    teacher, other = folder / "next_token", folder / "masked"
    said(f"objective.teacher={teacher}", "tokenizer.kind=char", words=("tokenizer", f"tokenizer.path={teacher}"))
    said(f"objective.teacher={teacher}", f"tokenizer.path={teacher}", "train.context=25", words=("context of 24",))
    said(
        *(tiny_model("encoder"), f"objective.teacher={teacher}", f"tokenizer.path={other}"),
        words=("objective.teacher", "next_token"),
    )
    said(f"objective.teacher={teacher}", "train.stream=true", words=("a teacher has no state of a stream",))
    said("objective.teacher=last", words=("last changes with every run",))


def test_a_teacher_of_hugging_face_and_its_tokenizer_are_a_folder(tmp_path: Path) -> None:
    """The folder names its special tokens, which a run leaves to their usual names."""
    model = "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 32}"
    few, text = (*QUIET, model, "train={steps: 2, batch_size: 2, context: 16}"), f"data.train={DATA / 'tiny.txt'}"
    char, folder = "tokenizer={kind: char}", tmp_path / "hf"
    teacher = trained(tmp_path / "teacher", *few[len(QUIET) :], text, char, recipe="gpt-nano")
    assert minitf("export", teacher, "-o", folder).exit_code == 0
    student = ("pretrain", "gpt-nano", *few, text, f"objective.teacher={folder}", "-d", tmp_path / "student")
    other = minitf(*student, "tokenizer={kind: byte}")
    refused(other, "hf has another tokenizer; 'tokenizer={path: ", 'separator: "</s>"', exit_code=3)
    done = minitf(*student, f"tokenizer.path={folder}")
    assert done.exit_code == 0, done.stderr
