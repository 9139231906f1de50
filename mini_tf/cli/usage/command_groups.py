"""Groups of commands and their commands, as in `commands.py`."""

from typing import NamedTuple

TRAIN, USE, INSPECT, SETUP, RUNS = (
    "Train",
    "Use a model",
    "Look inside a model",
    "Recipes, data, tokenizers",
    "Runs and machine",
)
"""Panels of commands."""


class Command(NamedTuple):
    """function: its module below `mini_tf.cli`, and its name there. examples: command lines that --help shows."""

    function: str
    help: str
    examples: tuple[str, ...]
    panel: str | None = None


GROUPS = {
    "inspect": ("Views of a trained model: attention, word, positions, model, ...", INSPECT),
    "recipe": ("List, show, check and create recipes.", SETUP),
    "data": ("Show and check data as the model sees it.", SETUP),
    "tokenizer": ("Train, apply and examine tokenizers.", SETUP),
    "runs": ("List, show, compare, report and remove runs.", RUNS),
}
"""Help and panel of each group of commands."""
GROUPED = {
    "recipe list": Command(
        "recipe:list_",
        "List the shipped recipes, numbered ones in one line; with --json all of them.",
        ("minitf recipe list",),
    ),
    "recipe show": Command(
        "recipe:show",
        "Print the complete recipe with all defaults, or with --why where one value was set.",
        ("minitf recipe show gpt-nano", "minitf recipe show gpt-nano --why optimizer.lr"),
    ),
    "recipe check": Command(
        "recipe:check",
        "Print all faults of a recipe, one per line; exit code 3 if there are any.",
        ("minitf recipe check quickstart model.n_heads=8",),
    ),
    "recipe schema": Command(
        "recipe:schema",
        "Print the JSON Schema of recipes, for completion and checks in editors.",
        ("minitf recipe schema > recipe.schema.json",),
    ),
    "recipe keys": Command(
        "recipe:keys",
        "List all keys with type, range, default and meaning.",
        ("minitf recipe keys train", "minitf recipe keys model.attention"),
    ),
    "recipe init": Command(
        "recipe:init",
        "Write a recipe to edit: a shipped recipe with a comment on every section.",
        ("minitf recipe init my.yaml", "minitf recipe init my.yaml --from bert-nano"),
    ),
    "data show": Command(
        "data:show",
        """Show the first rows that the model reads: inputs, targets, labels, document borders.

        Rows of the first training step, or of the validation data.
        """,
        ("minitf data show bert-nano", "minitf data show my.txt --rows 2 --split val"),
    ),
    "data stats": Command(
        "data:stats",
        "Count documents, tokens, bytes, vocabulary use, lengths, and duplicates between the splits.",
        ("minitf data stats my.txt",),
    ),
    "data check": Command(
        "data:check",
        """Read all rows of data.train and data.val and print their faults, or a summary.

        Exit code 4 if there are faults; otherwise sizes, labels, duplicates and lengths.
        """,
        ("minitf data check sst2-nano reviews.csv",),
    ),
    "tokenizer train": Command(
        "tokenizer:train",
        "Train the tokenizer of a recipe on its training data; Hugging Face's tokenizers library reads the file.",
        ("minitf tokenizer train my.txt tokenizer.kind=unigram tokenizer.vocab_size=1000 -o unigram.json",),
    ),
    "tokenizer encode": Command(
        "tokenizer:encode",
        "Print the ids of each text on one line, without special tokens; --json prints one object per text.",
        ('minitf tokenizer encode last "The file is closed." --pieces',),
    ),
    "tokenizer decode": Command(
        "tokenizer:decode",
        r"""Print the text of ids, without special tokens.

        The text of a line of stdin is one line, with newlines as \n; --json prints one object per text.
        """,
        ("minitf tokenizer decode last 12 7 42",),
    ),
    "tokenizer stats": Command(
        "tokenizer:stats",
        "Describe a tokenizer and what it loses; with a text, measure tokens per word and the round trip.",
        ('minitf tokenizer stats last "The file is closed."',),
    ),
    "runs list": Command(
        "runs.folders:list_",
        "List runs with recipe, state, loss, metric, parameters, minutes and date.",
        ("minitf runs list",),
    ),
    "runs show": Command(
        "runs.folders:show", "Show state, settings and metrics of one run.", ("minitf runs show last",)
    ),
    "runs compare": Command(
        "runs.compare:compare",
        """Compare metrics and settings of runs.

        Prints metrics side by side and the recipe keys that differ; two runs also get the difference, second minus
        first. Then metrics at equal FLOPs and at equal training time, with 95 % intervals over runs that differ only in
        the seed, the cost to reach the same value, and metrics of runs that were initialized from these. Runs that
        differ in data.max_train_samples get a table over the number of training examples. -o FILE.png plots it, else
        the loss curves.
        """,
        (
            "minitf runs compare first second -o losses.png",
            "minitf runs compare first second --at flops --reach val.loss",
        ),
    ),
    "runs report": Command(
        "runs.report:report",
        """Write a page of one or more runs for a browser: curves, metrics beside their baselines, settings, samples.

        Settings are those that differ from the defaults. Several runs stand side by side, and their curves and metrics
        are compared at equal steps, FLOPs and training time, as by `minitf runs compare`.
        """,
        (
            "minitf runs report last -o report.html",
            'minitf runs report first second --text "The file is" -o report.html',
        ),
    ),
    "runs rm": Command(
        "runs.folders:remove",
        """Remove runs with everything in their folders.

        Asks first at a terminal. Refused are a folder that is no run, a run in progress, and one of the runs of a set.
        """,
        ("minitf runs rm first second", "minitf runs rm last --yes"),
    ),
}
"""The commands of groups; those of `inspect` are views."""
