"""`minitf runs show`: state, settings and metrics of one run."""

from mini_tf.cli.runs.run_facts import read_lines, summary, warn_of_damage
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RUN


@command
def show(console: Console, run: RUN) -> None:
    from mini_tf.run import finding, manifest, metric_files
    from mini_tf.run.checkpoint import Checkpoints

    folder = finding.find(run)
    record = manifest.read(folder)
    warn_of_damage(console, folder)
    reports = list(metric_files.read_lines(folder / "metrics.jsonl"))
    kind = next((kind for kind in finding.MEMBERS for report in reports if kind in report), "")
    members = [report for report in reports if kind and kind in report]  # of a set of runs
    fitted = record.decision
    facts = summary(folder, record) | {
        "fitted": {}
        if fitted is None
        else {"temperature": fitted.temperature, **{f"bias of {one}": b for one, b in fitted.bias.items()}},
        "extensions": record.extensions,
        "checkpoints": sorted(Checkpoints.of(folder).steps()),
        "error": record.error,
        "seed": record.seed,
        "seeds": members if kind == "seed" else [],
        "folds": members if kind == "fold" else [],
        "auto": record.auto,
        "hashes": record.hashes,
        "versions": record.versions | {source.package: source.version for source in record.kinds.values()},
        "command": record.command,
    }
    last = {key: value for report in reports if not members for key, value in report.items() if key != "not_finite"}
    measured = {key: last.pop(key) for key in list(last) if key.startswith(("val.", "train."))}
    lines = read_lines(facts | {f"{kind}s": len(members)} if members else facts)
    for report in members:
        lines += ["", f"one {kind}:", *read_lines(report)]
    if last:
        lines += ["", f"training, last report (step {last.pop('step', '?')}):", *read_lines(last)]
    if record.metrics and members:
        of = next((number for number, report in enumerate(members, start=1) if report.get("median")), "?")
        lines += [
            "",
            f"median of each metric over {len(members)} {kind}s (model.safetensors is from {kind}-{of}):",
            *read_lines(record.metrics),
        ]
    elif record.metrics and record.model:
        lines += [
            "",
            f"model.safetensors (step {record.model['step']}), on all validation data:",
            *read_lines(record.metrics),
        ]
    elif measured or record.metrics:
        lines += ["", "last evaluation:", *read_lines(measured | record.metrics)]
    console.output("\n".join(lines), run=folder, metrics=last | measured | record.metrics, result=facts)
