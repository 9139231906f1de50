"""The commands of minitf: module and function, help with examples, and the panel of `--help`.

`minitf --help` reads them here and imports no command. A help begins with a sentence, which lists of commands show.
"""

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
    """examples: command lines that --help shows. function: its module below `mini_tf.cli` and its name there; default:
    the words of the command, `recipe:show`.
    """

    help: str
    examples: tuple[str, ...]
    panel: str | None = None
    function: str | None = None


GROUPS = {
    "inspect": ("Views of a trained model: attention, word, positions, model, ...", INSPECT),
    "recipe": ("List, show, check and create recipes.", SETUP),
    "data": ("Show and check data as the model sees it.", SETUP),
    "tokenizer": ("Train, apply and examine tokenizers.", SETUP),
    "runs": ("List, show, compare, report and remove runs.", RUNS),
}
"""Help and panel of each group of commands."""
COMMANDS = {
    "pretrain": Command(
        """Train a model from scratch.

        Reads the data, trains a tokenizer and the model, evaluates, saves checkpoints, and prints the run folder on
        stdout. The same command continues an interrupted run.
        """,
        (
            "minitf pretrain",
            "minitf pretrain my.txt train.steps=1000 -n mine",
            "minitf pretrain bert-nano my.txt --assert 'val.loss<4'",
        ),
        TRAIN,
    ),
    "finetune": Command(
        """Train a model on a task, from a pretrained run or from scratch.

        model.init_from=RUN initializes the weights from a run. Tasks: classify, regress, tag, seq2seq, instruct. The
        same command continues an interrupted run.
        """,
        ("minitf finetune sst2-nano reviews.csv", "minitf finetune sst2-nano reviews.csv model.init_from=bert"),
        TRAIN,
        function="pretrain:finetune",
    ),
    "sweep": Command(
        """Search over settings: train a recipe with each combination of values, and compare the runs.

        Runs that differ only in train.seed are one trial, whose metric is their mean with its 95 % interval. Prints a
        table of the trials, the best one first; the folder gets the runs, sweep.svg and best.yaml, the recipe of the
        best trial. The same command continues an interrupted sweep.
        """,
        (
            "minitf sweep my.txt 'optimizer.lr=[0.003,0.01,0.03]' train.seed=1..3 --budget 30m",
            "minitf sweep gpt-nano optimizer.lr=1e-4..1e-1 model.dropout_rate=0.0..0.3 --samples 27 --halving",
        ),
        TRAIN,
    ),
    "convert": Command(
        """Change the attention or the positions of a trained model, keep its weights, and compare the predictions.

        Or scale values of its feed-forward memories (`minitf inspect memory`). Writes a new run. Prints the KL
        divergence from the original's predictions, and loss and time of both. `minitf pretrain RECIPE
        model.init_from=NEW` trains it further.
        """,
        (
            "minitf convert last model.attention.kind=window -n windows",
            "minitf convert last --memory 3:511=0 -n silenced",
        ),
        TRAIN,
        function="conversion:convert",
    ),
    "import": Command(
        """Read a Hugging Face model as a run, and prove that its outputs are the same.

        All commands then work on the run. Pickle files and code are never read. The largest difference of the outputs
        on 16 sequences is in parity.json; above 1e-4 of the largest output the exit code is 5.
        """,
        ("minitf import ./tiny-llama -n tiny", "minitf import ./tiny-llama -o outputs/tiny --json"),
        TRAIN,
        function="conversion:import_",
    ),
    "generate": Command(
        r"""Continue prompts (decoder), fill [MASK] (encoder), translate (encoder-decoder) or answer a chat.

        Each line of stdin or FILE gives one output line, in which \n is a newline and \\ a backslash. Chat messages are
        JSON: {"messages": [{"role": "user", "content": "..."}]}. Without prompts, a terminal opens a prompt loop; /help
        lists its commands.
        """,
        ('minitf generate last "The file is" --temperature 0.7', "minitf generate last -i prompts.txt --greedy --json"),
        USE,
        function="generate.command:generate",
    ),
    "chat": Command(
        """Prompt a model again and again: the prompt loop of `minitf generate`.

        Each prompt stands alone; a run that was trained on chats answers it. /help lists the commands of the loop,
        /quit ends it.
        """,
        ("minitf chat last", "minitf chat last --temperature 0.7 --max-new-tokens 60"),
        USE,
        function="generate.command:chat",
    ),
    "predict": Command(
        """Predict labels, tags or numbers for texts.

        Prints a table at a terminal, else (and with --json) one line of JSON per text, in order: {"line": 1, "label":
        "good", "scores": {...}}. An input line is a text or a JSON object {"text": "..."}; empty ones are skipped.
        --assert checks metrics on an input with labels.
        """,
        ('minitf predict last "a warm story"', "minitf predict last -i reviews.csv > labels.jsonl"),
        USE,
    ),
    "embed": Command(
        """Embed texts: the mean of the last hidden states of a text, or what the head of a task pools.

        FILE.npy has the vectors, (texts, width) in float32; FILE.json has them with the texts. --neighbors prints the
        texts of largest cosine similarity.
        """,
        (
            "minitf embed last -i texts.txt -o vectors.npy",
            'minitf embed last "a warm story" --neighbors 5 --among texts.txt',
        ),
        USE,
    ),
    "evaluate": Command(
        """Compute loss, perplexity and task metrics on validation data or a file.

        Every target counts once. Language models: loss in nats, perplexity, bits per byte, accuracy. Classes: accuracy,
        F1, Matthews correlation. Tags: entity F1. Numbers: Pearson and Spearman correlation. Generated texts: ROUGE,
        BLEU, chrF. With --pairs instead: the share of minimal pairs whose acceptable sentence is more probable. With
        --babylm: BabyLM's tasks, in both ways if the model can; of a set of runs with intervals over them; -o FILE.json
        writes predictions for its leaderboard. With --threshold what has no label counts as wrong, and belongs to no
        entity.
        """,
        (
            "minitf evaluate last",
            "minitf evaluate last --data my.txt --assert 'loss<5'",
            "minitf evaluate last --pairs pairs.jsonl --assert 'pairs.accuracy>0.6'",
            "minitf evaluate last --babylm evaluation_data/full_eval -o predictions.json --assert 'babylm.blimp>0.6'",
        ),
        USE,
    ),
    "serve": Command(
        """Answer requests over HTTP, in the form of OpenAI's interface, until Ctrl-C.

        Routes: /v1/completions, /v1/chat/completions (runs with chats), /v1/embeddings, /predict (tasks), /v1/models,
        and a page to try it at /. Prints the address on stdout. Waiting requests are decoded together. Only requests
        for this machine are answered, nobody has to log in, and no file can be read.
        """,
        ("minitf serve last", "minitf serve last --port 0 --queue 16"),
        USE,
    ),
    "export": Command(
        """Write a run as a folder for transformers, ONNX Runtime or llama.cpp, and prove that its outputs are the same.

        Writes the model, tokenizer, model card and parity.json: the largest difference of the outputs on 16 sequences.
        Above 1e-4 of the largest output the exit code is 5. A model that the format does not have is refused, with all
        reasons.
        """,
        ("minitf export last -o ./my-model --license mit", "minitf export last -o ./tensors --to safetensors"),
        USE,
        function="conversion:export",
    ),
    "inspect crash": Command(
        """Replay the step that diverged, and find the first value that is not finite.

        Prints whether it diverges again, in which module, the range of every layer, and what to try.
        """,
        ("minitf inspect crash last",),
        "Common views",
        function="crash:crash",
    ),
    "recipe list": Command(
        "List the shipped recipes, numbered ones in one line; with --json all of them.",
        ("minitf recipe list",),
        function="recipe:list_",
    ),
    "recipe show": Command(
        "Print the complete recipe with all defaults, or with --why where one value was set.",
        ("minitf recipe show gpt-nano", "minitf recipe show gpt-nano --why optimizer.lr"),
    ),
    "recipe check": Command(
        "Print all faults of a recipe, one per line; exit code 3 if there are any.",
        ("minitf recipe check quickstart model.n_heads=8",),
    ),
    "recipe schema": Command(
        "Print the JSON Schema of recipes, for completion and checks in editors.",
        ("minitf recipe schema > recipe.schema.json",),
    ),
    "recipe keys": Command(
        "List all keys with type, range, default and meaning.",
        ("minitf recipe keys train", "minitf recipe keys model.attention"),
    ),
    "recipe init": Command(
        "Write a recipe to edit: a shipped recipe with a comment on every section.",
        ("minitf recipe init my.yaml", "minitf recipe init my.yaml --from bert-nano"),
    ),
    "data show": Command(
        """Show the first rows that the model reads: inputs, targets, labels, document borders.

        Rows of the first training step, or of the validation data.
        """,
        ("minitf data show bert-nano", "minitf data show my.txt --rows 2 --split val"),
    ),
    "data stats": Command(
        "Count documents, tokens, bytes, vocabulary use, lengths, and duplicates between the splits.",
        ("minitf data stats my.txt",),
    ),
    "data check": Command(
        """Read all rows of data.train and data.val and print their faults, or a summary.

        Exit code 4 if there are faults; otherwise sizes, labels, duplicates and lengths.
        """,
        ("minitf data check sst2-nano reviews.csv",),
    ),
    "tokenizer train": Command(
        "Train the tokenizer of a recipe on its training data; Hugging Face's tokenizers library reads the file.",
        ("minitf tokenizer train my.txt tokenizer.kind=unigram tokenizer.vocab_size=1000 -o unigram.json",),
    ),
    "tokenizer encode": Command(
        "Print the ids of each text on one line, without special tokens; --json prints one object per text.",
        ('minitf tokenizer encode last "The file is closed." --pieces',),
    ),
    "tokenizer decode": Command(
        r"""Print the text of ids, without special tokens.

        The text of a line of stdin is one line, with newlines as \n; --json prints one object per text.
        """,
        ("minitf tokenizer decode last 12 7 42",),
    ),
    "tokenizer stats": Command(
        "Describe a tokenizer and what it loses; with a text, measure tokens per word and the round trip.",
        ('minitf tokenizer stats last "The file is closed."',),
    ),
    "runs list": Command(
        "List runs with recipe, state, loss, metric, parameters, minutes and date.",
        ("minitf runs list",),
        function="runs.folders:list_",
    ),
    "runs show": Command(
        "Show state, settings and metrics of one run.",
        ("minitf runs show last",),
        function="runs.folders:show",
    ),
    "runs compare": Command(
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
        function="runs.compare:compare",
    ),
    "runs report": Command(
        """Write a page of one or more runs for a browser: curves, metrics beside their baselines, settings, samples.

        Settings are those that differ from the defaults. Several runs stand side by side, and their curves and metrics
        are compared at equal steps, FLOPs and training time, as by `minitf runs compare`.
        """,
        (
            "minitf runs report last -o report.html",
            'minitf runs report first second --text "The file is" -o report.html',
        ),
        function="runs.report:report",
    ),
    "runs rm": Command(
        """Remove runs with everything in their folders.

        Asks first at a terminal. Refused are a folder that is no run, a run in progress, and one of the runs of a set.
        """,
        ("minitf runs rm first second", "minitf runs rm last --yes"),
        function="runs.folders:remove",
    ),
    "cost": Command(
        """Estimate time, memory and FLOPs of a training run, or of attention against the length of a row.

        Measured on real training steps; only tokenized data stays, in the cache. One recipe prints details, several a
        table. FLOPs count matrix products, forward and backward (3 x forward), with the full square of attention
        scores. MFU is their share of the fastest matrix product on this machine. --json: `result` has one object per
        recipe, `metrics` is that of the first.
        """,
        ("minitf cost quickstart", "minitf cost gpt-nano gpt-char --lengths 128..8192 -o cost.png"),
        RUNS,
    ),
    "doctor": Command(
        "Report versions, devices and free space, and what works here.",
        ("minitf doctor", "minitf doctor --resume"),
        RUNS,
    ),
}
"""By the words on the command line, in the order of --help; a group stands where its first command does."""
