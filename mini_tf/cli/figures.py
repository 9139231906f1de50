"""What `evaluate` and `predict` measure, by the names that --assert uses; a gate that can never be met is refused at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mini_tf.cli import measured
from mini_tf.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.recipe.gates import Gate
    from mini_tf.run.trained import Trained

OF_TEXTS = tuple(name.removeprefix("val.") for name in measured.OF_TEXTS)
"""Of what the model writes, compared with its references."""
OF_LOSS = ("loss", "targets")
"""What predictions alone do not tell."""
OF_FORMS = {
    "text": ("loss", "perplexity", "bits_per_byte", "accuracy", "targets"),
    "pairs": ("loss", "perplexity", "bits_per_byte", "accuracy", "targets", *OF_TEXTS),
    "turns": ("loss", "perplexity", "accuracy", "targets", *OF_TEXTS),
    **{
        form: ("loss", *(["accuracy"] if form != "numbers" else []), *(name.removeprefix("val.") for name in names), "targets")
        for form, names in measured.OF_FORMS.items()
    },
}
"""By the form of data that a run reads; bits per byte only where every token is asked for. f1. goes on with a class."""


def check_figures(gates: "Sequence[Gate]", trained: "Trained", command: str) -> None:
    """UsageFault where a run of this form has no such figure, or no such class; Unavailable where a package for a figure is missing."""
    from mini_tf.scores import require

    form = trained.recipe.objective.FORM
    names = [name for name in OF_FORMS[form] if command == "evaluate" or name not in OF_LOSS]
    for gate in gates:
        if not any(gate.metric.startswith(name) and gate.metric != name if name[-1] == "." else gate.metric == name for name in names):
            listed = ", ".join(f"{name}CLASS" if name.endswith(".") else name for name in names)
            raise UsageFault(f"--assert {gate.metric}: {command} measures no such figure here; it does {listed}")
        figure, dot, wanted = gate.metric.partition(".")
        if dot and figure == "f1" and trained.labels is not None and wanted not in trained.labels.names:
            raise UsageFault(
                f"--assert {gate.metric}: there is no class {wanted!r}", hint=f"there are: {', '.join(trained.labels.names[:20])}"
            )
        require(*(package for package, figures in measured.PACKAGES.items() if f"val.{gate.metric}".startswith(figures)))
