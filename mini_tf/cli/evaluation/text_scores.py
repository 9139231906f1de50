"""`minitf evaluate RUN` with --pairs or --babylm: sentences compared by their probabilities."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.gate_checks import check_gates, refuse_missed
from mini_tf.cli.terminal.processes import group_of, leave_to_rank_0
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.recipe.metrics import Gate
    from mini_tf.scores.babylm_scores import TaskScore
    from mini_tf.scores.intervals import PairScores
    from mini_tf.trained.babylm_tasks import Measured
    from mini_tf.trained.opening import Trained


def evaluate_pairs(
    console: Console, trained: "Trained", files: Sequence[str], score: str | None, bounds: "Sequence[Gate]"
) -> int:
    """Score both sentences of each pair and print the accuracy, in all and by paradigm and phenomenon."""
    from mini_tf.data.formats.babylm_files import GROUPS, read_pairs
    from mini_tf.drawing.terminal import table
    from mini_tf.pipelines import pipeline_of
    from mini_tf.scores.intervals import pair_scores

    kind, description = trained.recipe.objective.text_score(score, trained.folder.name, "--pairs")
    check_gates(bounds, "pairs", trained.recipe)
    pairs = read_pairs(files)
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    places = [pair.where for pair in pairs for _ in range(2)]
    with group_of() as group:
        scorer = pipeline_of(trained).text_scorer(kind, group)
        for note in scorer.notes(texts, "sentence", cut=False):
            console.say(note)
        scores = scorer.texts(texts, places)
    leave_to_rank_0(group)
    overall = pair_scores(scores[::2], scores[1::2])
    groups: dict[str, dict[str, PairScores]] = {}
    for column in GROUPS:
        of_names: dict[str, list[tuple[float, float]]] = {}
        for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
            if column in pair.groups:
                of_names.setdefault(pair.groups[column], []).append((good, bad))
        groups[column] = {name: pair_scores(*zip(*of_name, strict=True)) for name, of_name in of_names.items()}
    metrics = {"pairs.accuracy": overall.accuracy, "pairs.difference": overall.difference, "pairs.n": overall.n}
    metrics |= {f"pairs.accuracy.{name}": group_scores.accuracy for name, group_scores in groups["UID"].items()}
    result = {"score": kind, "description": description, **overall._asdict()}
    result["groups"] = {
        column: {name: group_scores._asdict() for name, group_scores in of_column.items()}
        for column, of_column in groups.items()
        if of_column
    }
    console.output(_text(overall, description), run=trained.folder, metrics=metrics, result=result)
    for column, of_column in groups.items():
        if of_column and (column == GROUPS[0] or len(of_column) != len(groups[GROUPS[0]])):
            rows = [[name, *_cells(group_scores)] for name, group_scores in of_column.items()]
            console.show(table, [column, "pairs", "accuracy", "95 % interval", "difference"], rows)
    refuse_missed(bounds, metrics)
    return 0


def _text(overall: "PairScores", description: str) -> str:
    ties = f", ties ({overall.ties}) count half" if overall.ties else ""
    lines = {
        "pairs.accuracy": f"{overall.accuracy:.6g}  (95 % interval {overall.low:.4f} to {overall.high:.4f}{ties})",
        "pairs.difference": f"{overall.difference:.6g}  (mean log P(good) - log P(bad), nats)",
        "pairs.n": str(overall.n),
        "score": description,
    }
    return "\n".join(f"{name:<16} {value}" for name, value in lines.items())


def _cells(scores: "PairScores") -> list[str]:
    return [
        str(scores.n),
        f"{scores.accuracy:.4f}",
        f"{scores.low:.4f} to {scores.high:.4f}",
        f"{scores.difference:+.4f}",
    ]


OFFICIAL = "BabyLM's own script takes the first of equal scores, the right answer: what it prints is in the last column"


class BabyLMOptions(NamedTuple):
    """--babylm, --score, --output and --force."""

    folder: Path
    score: str | None
    output: Sequence[Path]
    force: bool

    def files_of(self, kind: str, trained: "Trained", is_only: bool) -> list[Path]:
        """The files of predictions by a way to score texts: FILE-BACKEND.json, if it is not the only one."""
        end = "" if is_only else f"-{_backends(trained).get(kind, kind)}"
        return [path.with_stem(f"{path.stem}{end}") for path in self.output]


def evaluate_babylm(
    console: Console,
    runs: Sequence[Path],
    opening: Callable[[str], "Trained"],
    options: BabyLMOptions,
    bounds: "Sequence[Gate]",
) -> int:
    """Score the tasks that the folder has with each run; print a table for each way to score a text."""
    from mini_tf.data.formats.babylm_files import read_babylm
    from mini_tf.pipelines import pipeline_of
    from mini_tf.scores import missing_warning
    from mini_tf.trained.babylm_tasks import measure

    if options.output and len(runs) > 1:
        fault = f"--output {options.output[0]}: predictions are of one model, and {runs[0].parent} has {len(runs)}"
        raise UsageFault(fault, hint=f"name one of its runs: minitf evaluate {runs[0]}")
    tasks, notes = read_babylm(options.folder)
    measurements: dict[str, list[Measured]] = {}
    outputs: dict[str, list[Path]] = {}
    with group_of() as group:
        for run in runs:
            trained = opening(str(run))
            kinds = _kinds(trained, options.score)
            check_gates(bounds, "babylm", trained.recipe)
            outputs = {kind: options.files_of(kind, trained, len(kinds) == 1) for kind in kinds}
            files.check([path for paths in outputs.values() for path in paths], (".json",), options.force)
            for kind in kinds:
                scorer = pipeline_of(trained).text_scorer(kind, group)
                if not measurements:
                    texts = [text for items in tasks.values() for item in items for text in item.texts]
                    notes += [*scorer.notes(texts), *filter(None, [missing_warning("scikit-learn")])]
                    for note in notes:
                        console.say(note)
                measurements.setdefault(kind, []).append(measure(tasks, scorer))
    leave_to_rank_0(group)
    for kind, paths in outputs.items():
        files.write_all(console, paths, measurements[kind][0].predictions)
    return _report(console, runs, trained, measurements, notes, bounds)


def _backends(trained: "Trained") -> dict[str, str]:
    pipeline = trained.recipe.objective.pipeline()
    return {} if pipeline is None else dict(pipeline.BABYLM_BACKENDS)


def _kinds(trained: "Trained", score: str | None) -> list[str]:
    """The ways to score a text: the given one, or those of BabyLM's script. UsageFault if there is none."""
    kind, _ = trained.recipe.objective.text_score(score, trained.folder.name, "--babylm")
    return [kind] if score is not None else [*_backends(trained)] or [kind]


def _report(
    console: Console,
    runs: Sequence[Path],
    trained: "Trained",
    measurements: "dict[str, list[Measured]]",
    notes: Sequence[str],
    bounds: "Sequence[Gate]",
) -> int:
    """Print tables, JSON and what fails."""
    from mini_tf.drawing.terminal import sentence, table

    of_kinds = {
        kind: {task: _over_runs([measurement.scores[task] for measurement in measured]) for task in measured[0].scores}
        for kind, measured in measurements.items()
    }
    metrics = {f"babylm.{task}": score["value"] for task, score in next(iter(of_kinds.values())).items()}
    metrics |= {
        f"babylm.{task}.{kind}": score["value"] for kind, tasks in of_kinds.items() for task, score in tasks.items()
    }
    result = {"runs": [str(run) for run in runs], "scores": of_kinds, "notes": [*notes]}
    console.output(run=runs[0] if len(runs) == 1 else runs[0].parent, metrics=metrics, result=result)
    for kind, tasks in of_kinds.items():
        _, description = trained.recipe.objective.text_score(kind, trained.folder.name, "--babylm")
        rows = [_row(task, score) for task, score in tasks.items()]
        console.show(table, ["task", "measure", "items", "score", "95 % interval", "ties", "official"], rows)
        over = f"Intervals of Student's t over {len(runs)} runs" if len(runs) > 1 else "Bootstrap intervals"
        meaning = f"{description[0].upper()}{description[1:]}. {over}. A tie counts 1 / n of n equal answers."
        console.show(sentence, meaning)
    if any(score["ties"] for tasks in of_kinds.values() for score in tasks.values()):
        console.say(OFFICIAL)
    refuse_missed(bounds, metrics)
    return 0


def _over_runs(scores: "Sequence[TaskScore]") -> dict[str, Any]:
    """The score of one run with its interval, or the means over several, with Student's interval over them."""
    from mini_tf.scores.intervals import mean_interval

    first = scores[0]
    if len(scores) == 1:
        return first._asdict()
    mean = mean_interval([score.value for score in scores])
    half = mean.half or 0.0
    official = None if first.official is None else mean_interval([score.official or 0.0 for score in scores]).mean
    subtasks = {name: mean_interval([score.subtasks[name] for score in scores]).mean for name in first.subtasks}
    return {
        **first._asdict(),
        **{"value": mean.mean, "low": mean.mean - half, "high": mean.mean + half, "official": official},
        **{
            "ties": sum(score.ties for score in scores),
            "subtasks": subtasks,
            "values": [score.value for score in scores],
        },
    }


def _row(task: str, score: dict[str, Any]) -> list[str]:
    interval = f"{score['low']:.4f} to {score['high']:.4f}"
    ties = ["", ""] if score["official"] is None else [str(score["ties"]), f"{score['official']:.4f}"]
    return [task, score["measure"], str(score["n"]), f"{score['value']:.4f}", interval, *ties]
