"""`minitf evaluate RUN --pairs FILE`: accuracy on minimal pairs of sentences."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.cli.gate_checks import check_gates, refuse_missed
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.processes import group_of, leave_to_rank_0

if TYPE_CHECKING:
    from mini_tf.recipe.metrics import Gate
    from mini_tf.scores.intervals import PairScores
    from mini_tf.trained.opening import Trained


def evaluate_pairs(
    console: Console, trained: "Trained", files: Sequence[str], score: str | None, bounds: "Sequence[Gate]"
) -> int:
    """Score both sentences of each pair and print the accuracy, in all and by paradigm and phenomenon."""
    from mini_tf.data.formats.tables import GROUPS, read_pairs
    from mini_tf.drawing.terminal import table
    from mini_tf.pipelines import pipeline_of
    from mini_tf.scores.intervals import pair_scores

    kind, description = trained.recipe.objective.text_score(score, trained.folder.name, "--pairs")
    check_gates(bounds, "pairs", trained.recipe)
    pairs = read_pairs(files)
    texts, places = (
        [text for pair in pairs for text in (pair.good, pair.bad)],
        [pair.where for pair in pairs for _ in range(2)],
    )
    with group_of() as group:
        scorer = pipeline_of(trained).text_scorer(kind, group)
        for note in scorer.notes(texts, "sentence", cut=False):
            console.say(note)
        scores = scorer.texts(texts, places)
    leave_to_rank_0(group)
    found = list(zip(pairs, scores[::2], scores[1::2], strict=True))
    overall = pair_scores(scores[::2], scores[1::2])
    groups: dict[str, dict[str, PairScores]] = {}
    for column in GROUPS:
        chosen: dict[str, list[tuple[float, float]]] = {}
        for pair, good, bad in found:
            if column in pair.groups:
                chosen.setdefault(pair.groups[column], []).append((good, bad))
        groups[column] = {
            name: pair_scores([good for good, _ in some], [bad for _, bad in some]) for name, some in chosen.items()
        }
    metrics = {"pairs.accuracy": overall.accuracy, "pairs.difference": overall.difference, "pairs.n": overall.n}
    metrics |= {f"pairs.accuracy.{name}": one.accuracy for name, one in groups["UID"].items()}
    console.output(
        _text(overall, description),
        run=trained.folder,
        metrics=metrics,
        result=_json(overall, groups, kind, description),
    )
    for column, of_column in groups.items():
        if of_column and (column == GROUPS[0] or len(of_column) != len(groups[GROUPS[0]])):
            rows = [[name, *_cells(one)] for name, one in of_column.items()]
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


def _cells(one: "PairScores") -> list[str]:
    return [str(one.n), f"{one.accuracy:.4f}", f"{one.low:.4f} to {one.high:.4f}", f"{one.difference:+.4f}"]


def _json(
    overall: "PairScores", groups: "Mapping[str, Mapping[str, PairScores]]", kind: str, description: str
) -> dict[str, Any]:
    of_groups = {
        column: {name: one._asdict() for name, one in found.items()} for column, found in groups.items() if found
    }
    return {"score": kind, "description": description, **overall._asdict(), "groups": of_groups}
