"""What training measures, by the names that --assert uses: a gate that a run cannot meet is refused before it begins."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mini_tf.recipe.gates import Gate
    from mini_tf.recipe.recipe import Recipe

OF_ALL = ("val.loss", "val.perplexity", "val.bits_per_byte", "val.accuracy", "train.loss", "minutes")
"""Bits per byte only where every token is asked for."""
OF_TEXTS = ("val.bleu", "val.chrf", "val.exact_match", "val.rouge1", "val.rouge2", "val.rougeL")
"""Of what the model writes, compared with its references."""
OF_FORMS = {
    "classes": ("val.f1_macro", "val.f1_micro", "val.f1.", "val.matthews"),
    "numbers": ("val.pearson", "val.spearman", "val.rmse"),
    "tags": ("val.f1_macro", "val.entity_f1", "val.entity_f1.", "val.entity_precision", "val.entity_recall"),
}
"""Of what an objective with such a form of data asks; a name that ends in a dot goes on with a class."""
OF_SEEDS = (".mean", ".std", ".min", ".max")
"""Behind any name where several seeds are trained; the name alone is their median."""
EVERY = tuple(dict.fromkeys([*OF_ALL, *OF_TEXTS, *OF_FORMS["classes"], *OF_FORMS["numbers"], *OF_FORMS["tags"]]))
PACKAGES = {
    "sacrebleu": OF_TEXTS[:3],
    "rouge-score": OF_TEXTS[3:],
    "scikit-learn": (*OF_FORMS["classes"], "val.pearson", "val.spearman"),
    "seqeval": ("val.entity_",),
}
"""Optional ones, and the figures that need them."""


def check_gate(gate: "Gate", recipe: "Recipe") -> None:
    """UsageFault where training by this recipe measures no such figure, Unavailable where the package for it is missing."""
    from mini_tf.errors import UsageFault
    from mini_tf.scores import require

    figure, kind, form = _without_statistic(gate.metric, recipe.train.seeds), recipe.objective.kind, recipe.objective.FORM
    if not _is_among(figure, EVERY):
        listed = ", ".join(f"{name}CLASS" if name.endswith(".") else name for name in EVERY)
        raise UsageFault(f"--assert {gate.metric}: training measures no such figure; it does {listed}")
    if figure in OF_TEXTS and (form not in ("pairs", "turns") or not recipe.eval.translations):
        raise UsageFault(f"--assert {gate.metric}: this run translates nothing", hint="a model of pairs does, with eval.translations")
    if figure not in OF_ALL + OF_TEXTS and not _is_among(figure, OF_FORMS.get(form, ())):
        forms = " or ".join(name for name, figures in OF_FORMS.items() if _is_among(figure, figures))
        raise UsageFault(f"--assert {gate.metric}: it is a figure of {forms}, and {kind} reads {form}")
    require(*(package for package, figures in PACKAGES.items() if figure.startswith(figures)))


def _without_statistic(name: str, seeds: int) -> str:
    """val.accuracy of val.accuracy.mean; UsageFault where there is one seed, which has no mean. But a class may be called `mean`."""
    from mini_tf.errors import UsageFault

    figure, dot, statistic = name.rpartition(".")
    if dot + statistic not in OF_SEEDS or not _is_among(figure, EVERY):
        return name
    if seeds > 1:
        return figure
    if _is_among(name, EVERY):
        return name
    raise UsageFault(f"--assert {name}: one seed has no {statistic}", hint="train.seeds=5 trains several")


def _is_among(figure: str, names: tuple[str, ...]) -> bool:
    return any(figure.startswith(name) and figure != name if name.endswith(".") else figure == name for name in names)
