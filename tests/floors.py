"""The floors of mini_tf: imports go down only, and who lives on one floor does not know each other.

The import test reads FLOORS, and the picture of them in the README is `picture()`.
"""

FLOORS: list[dict[str, str]] = [
    {"system": "errors, limits, files, caches, safe text, seeds"},
    {"recipe": "settings, strict YAML, overrides, presets; no torch"},
    {
        "nn": "tensors: layers, blocks, the contracts of mixers, positions and models",
        "drawing": "numbers to pictures; no torch",
        "scores": "metrics of predictions",
        "optimizers": "KINDS",
    },
    {
        "attention": "KINDS",
        "positions": "KINDS",
        "models": "KINDS",
        "noises": "KINDS",
        "parallel": "several processes that work together: launching, groups, reduction, sharding",
    },
    {"data": "files to rows: datasets KINDS, tokenizers KINDS, corpora KINDS"},
    {"objectives": "KINDS", "schedules": "KINDS", "baselines": "KINDS"},
    {
        "training": "the loop, its plan and feed, the machine, evaluation",
        "run": "the folder a run lives in",
        "generation": "text out of a model",
    },
    {"trained": "a model out of a run folder"},
    {
        "pipelines": "KINDS: inputs and outputs of a trained model",
        "inspection": "KINDS: views of a trained model",
        "hf": "models of Hugging Face, in and out: families KINDS, formats KINDS",
    },
    {
        "jobs": "from recipe to run, proof of resume",
        "testing": "the contracts of all kinds as functions",
        "serving": "a trained model over HTTP",
    },
    {"cost": "what a recipe costs, measured on a few steps of its run"},
    {"cli": "one file a command", "api": "the same in Python"},
]
"""From the bottom up, each part with what it is for. `papers` import any floor, and none imports a paper."""


def picture() -> str:
    """The floors as text, the top one first."""
    width = max(len(name) for floor in FLOORS for name in floor)
    lines = []
    for number, floor in reversed(list(enumerate(FLOORS))):
        for n, (name, what) in enumerate(floor.items()):
            lines.append(f"{number if n == 0 else '':>2}  {name:{width}}  {what}")
    lines.append(
        f"    {'papers':{width}}  one folder a paper, with what it adds; imports any floor, is imported by none"
    )
    return "\n".join(lines)
