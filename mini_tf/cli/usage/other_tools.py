"""Commands and options of other tools, and words that people try, with what minitf has in their place."""


def _by_word(words: dict[str, str]) -> dict[str, str]:
    """The hints by word, of words by hint."""
    return {word: hint for hint, together in words.items() for word in together.split()}


_NOT_HERE = "there is nothing of this kind here; `minitf --help` lists what it has"
_NO_PREPARATION = "`minitf pretrain my.txt` splits and tokenizes the text itself; `minitf data show RECIPE` shows it"
_RUN_FOLDER = "a run is a folder: mv outputs/OLD outputs/NEW, cp -r outputs/OLD outputs/NEW"
COMMANDS: dict[str, dict[str, str]] = {
    "minitf": _by_word(
        {
            "`minitf pretrain my.txt` from scratch, `minitf finetune RECIPE` on a task": (
                "train fit learn new create trainer run-clm causal-lm language-modeling torchrun litgpt nanogpt"
            ),
            "`minitf pretrain bert-nano my.txt`": "run-mlm mlm masked-lm",
            "`minitf finetune sst2-nano reviews.csv`": (
                "run-glue run-classification run-text-classification text-classification sequence-classification"
            ),
            "`minitf finetune wnut17-nano my.conll`": "run-ner token-classification",
            "`minitf finetune summarize-nano`": "run-summarization",
            "`minitf pretrain transformer-nano`": "run-translation",
            "adapter.merge=true adds the adapter to the run's model.safetensors": "merge-lora merge-adapter",
            '`minitf pretrain` trains, `minitf generate last "a prompt"` continues a text': "run start demo try",
            "`minitf finetune sst2-nano reviews.csv model.init_from=RUN`, with adapter.kind=lora if only an adapter is"
            " to be trained": "fine-tune tune sft lora qlora peft finetune-lora finetune-full finetune-adapter",
            '`minitf generate RUN "a prompt"`': (
                "sample complete completion infer inference gen prompt ask text-generation pipeline run-generation"
            ),
            '`minitf generate RUN "a [MASK]"` of an encoder': "fill fill-mask mask unmask",
            "`minitf generate RUN -i texts.txt`": "translate summarize batch translation summarization",
            '`minitf predict RUN "a text"`': "classify label tag ner sentiment regress",
            "`minitf evaluate RUN --split val`, `minitf evaluate RUN --data FILE`": (
                "eval test validate score perplexity ppl metrics bleu lm-eval run-eval"
            ),
            '`minitf inspect-attention RUN "a text" -o heads.png`': (
                "attention visualize bertviz head-view model-view neuron-view heatmap view explain attn"
            ),
            "`minitf embed RUN -i texts.txt -o vectors.npy`": "embedding embeddings vectors retrieve search",
            "`minitf inspect word RUN WORD -i sentences.txt`": "similarity",
            '`minitf tokenizer encode RUN "a text"`': "tokens",
            '`minitf tokenizer encode RUN "a text"`; `minitf data show my.txt`': "tokenize tokenise",
            "`minitf inspect model RUN` shows its parameters, `minitf runs show RUN` its settings and metrics": (
                "summary params parameters count weights architecture arch describe details print size"
            ),
            "`minitf data stats my.txt`, `minitf runs show RUN`, `minitf tokenizer stats RUN`": "stats statistics",
            "`minitf cost RECIPE` measures time, memory and FLOPs": "bench benchmark profile estimate flops speed",
            "`minitf cost RECIPE` measures; mini_tf/parallel/README.md has the arithmetic for many devices": "plan",
            "`minitf import hf:NAME`": (
                "download pull load fetch get from-pretrained hub convert-hf-checkpoint convert-pretrained-checkpoint"
            ),
            "`minitf export RUN -o DIR` writes a folder for Hugging Face": (
                "save push push-to-hub upload publish convert-to-hf convert-hf convert-to-litgpt convert-from-litgpt"
                " save-pretrained convert-lit-checkpoint"
            ),
            "`minitf runs list`": "ls status ps jobs history experiments",
            "`minitf runs list`, `minitf recipe list`": "list models",
            "`minitf runs show RUN`; the messages are in log.txt of its folder": "log logs tail watch",
            "`minitf doctor` for this machine, `minitf runs show RUN` for a run": "info env system devices gpu",
            "loss.svg in the run's folder; `minitf runs compare RUN OTHER -o losses.png`": "plot curves diff loss",
            "`minitf pretrain RECIPE --tensorboard` writes event files": "tensorboard wandb mlflow track",
            "Ctrl-C (or kill PID) stops a run after saving; the same command continues it": "stop kill cancel pause",
            "the command that started the run continues it; so does `minitf pretrain RUN`": "resume continue restart",
            "`minitf runs rm RUN`": "remove delete del clean prune",
            _RUN_FOLDER: "cp copy mv move rename",
            "`minitf doctor` shows what is installed; pip installs": "install update upgrade setup",
            "`minitf --help`, `minitf COMMAND --help`; README.md, recipes/tutorial.md": (
                "help docs doc tutorial examples example guide man"
            ),
            "`minitf recipe show RECIPE`": "config cfg settings",
            "`minitf recipe init my.yaml` writes a recipe; `minitf pretrain my.txt` needs none": "init",
            _NO_PREPARATION: "prep prepare preprocess dataset prepare-data",
            "`minitf sweep RECIPE 'optimizer.lr=[0.01,0.02]'` tries settings; `minitf pretrain RECIPE train.seeds=3`"
            " several seeds": "search grid optuna ablate hyperopt hpo",
            "`minitf serve RUN` answers over HTTP, with a page to try it; `minitf chat RUN` in the terminal": (
                "server api web ui gui app deploy gradio"
            ),
            "`--average N` of generate and evaluate averages checkpoints": "average merge",
            "`minitf --version`": "version",
            _NOT_HERE: "quantize prune distill dpo rlhf ppo grpo rag",
        }
    ),
    "minitf runs": _by_word(
        {
            "`minitf runs list`": "ls status all best",
            "`minitf runs show RUN`; log.txt and loss.svg are in the run's folder": (
                "info details describe view open log logs tail cat plot loss curves"
            ),
            "`minitf runs compare RUN RUN`": "diff",
            "`minitf runs rm RUN`": "delete remove del clean prune",
            _RUN_FOLDER: "mv move rename cp copy",
        }
    ),
    "minitf recipe": _by_word(
        {
            "`minitf recipe keys SECTION`": "keys-of options params help search find",
            "`minitf recipe init my.yaml --from PRESET` writes one to edit": "new create edit copy save export dump",
            "`minitf recipe check RECIPE`": "validate verify lint test",
            "`minitf recipe show RECIPE`": "get print cat view info describe diff",
        }
    ),
    "minitf data": _by_word(
        {
            "`minitf data show my.txt`; README.md names the built-in data": "list ls head preview view print sample",
            "`minitf data stats my.txt`": "info describe count summary",
            "`minitf data check RECIPE`": "validate verify lint clean",
            _NO_PREPARATION: "prepare preprocess tokenize split build download",
        }
    ),
    "minitf tokenizer": _by_word(
        {
            '`minitf tokenizer encode RUN "a text" --pieces`': "tokenize tokens split pieces show",
            '`minitf tokenizer stats RUN "a text"`': "info vocab vocabulary size test inspect",
            "`minitf tokenizer train my.txt -o tokenizer.json`": "new create build fit",
        }
    ),
    "minitf inspect": _by_word(
        {
            '`minitf generate RUN "a prompt" --logprobs 5`': "logits logprobs probabilities predictions",
            "`minitf runs show RUN`; loss.svg is in its folder": "loss losses curves training metrics run",
        }
    ),
}
"""What to type in place of a command, by the group that lacks it."""

_LEAVE_OUT = "leave it out"
_RUN_FIRST = "the run is the first argument: minitf {command} RUN"
_RECIPE_FIRST = "a recipe is an argument: minitf {command} recipe.yaml"
_PROMPT = 'the prompt is an argument: minitf {command} RUN "a prompt"'
_DATA = "a data file is an argument: minitf {command} my.txt; or data.train=FILE"
_CONTINUES = "the same command continues an unfinished run; --extend N trains a finished one further"
_STDOUT = "the result is on stdout: minitf {command} RUN ... > FILE"
OPTIONS: dict[str, dict[str, str]] = {
    "generate": _by_word(
        {
            "--num-beams": "--beam-size --beams",
            "--num-samples N": "--n --num-return-sequences --samples --count",
            "--num-samples N, or --max-new-tokens N": "-n",
            "--max-new-tokens N": "--max-tokens --length --tokens --num-tokens --n-tokens --n-predict",
            "--max-new-tokens N counts the new tokens alone": "--max-length",
            "--min-new-tokens N, of an encoder-decoder": "--min-length",
            "--no-repeat-ngram N, of an encoder-decoder": "--no-repeat-ngram-size",
            "--temperature T": "--temp -t",
            "--top-k K": "-k --topk",
            "--top-p P": "--topp",
            "texts are sampled unless --greedy is given, or a run is an encoder or an encoder-decoder": "--do-sample",
            _PROMPT: "--prompt --start --text -p",
            "`minitf chat RUN`": "--interactive --chat",
            _LEAVE_OUT: "--pad-token-id --eos-token-id --early-stopping --use-cache --trust-remote-code",
            _STDOUT: "--output --out -o",
        }
    ),
    "predict": _by_word(
        {
            "--top N": "--top-k --topk",
            "the probabilities are printed without it": "--proba --probs --probabilities --scores --return-all-scores",
            "--fields '{{text: COLUMN}}'": "--text-column --text-column-name --column --columns --label-column",
            _STDOUT: "--output --output-file --out -o --format --csv",
        }
    ),
    "evaluate": _by_word(
        {
            "all metrics are printed; --assert 'loss<5' checks one": "--metric --metrics",
            "--json prints them for programs: minitf {command} RUN --json > FILE": "--out",
            "--data FILE": "--test --test-file --input -i --dataset --file --validation-file",
            "--babylm DIR: BabyLM's tasks; --pairs FILE: such pairs; other benchmarks are not here": "--tasks --task",
            _LEAVE_OUT: "--batch-size --limit --max-samples --max-eval-samples",
        }
    ),
    "training": _by_word(
        {
            "model.init_from=RUN starts from the weights of a run": "--checkpoint --ckpt --pretrained",
            _RECIPE_FIRST: "--config --recipe -c",
            _DATA: "--data --dataset --text --train-file --input -i",
            _DATA + ", data.train=hf:NAME": "--dataset-name --dataset-config-name",
            "data.val=FILE": "--validation-file --val-file --val-data --eval-file",
            "`minitf evaluate RUN --data FILE` afterwards": "--test --test-file",
            "model.init_from=RUN or model.init_from=hf:NAME; the same command continues a run": "--init-from",
            "'data.fields={{text: COLUMN, label: COLUMN}}'": (
                "--text-column --text-column-name --label-column --label-column-name --column --columns --fields"
            ),
            "data.header=false if the first row is no header": "--header --no-header",
            "model.d_model=256 is a setting; model.init_from=RUN starts from a run": "--model -m",
            "model.init_from=RUN, or model.init_from=hf:NAME": "--model-name-or-path --checkpoint-dir",
            "tokenizer.kind=KIND, or tokenizer.path=FILE": "--tokenizer --tokenizer-dir",
            "--out-dir DIR, or --name NAME in outputs/": "--output --out",
            "--out-dir DIR, or --name NAME in outputs/; weights are written to model.safetensors there": "-o",
            "--name NAME": "--run-name --experiment --exp-name",
            _CONTINUES: "--resume --resume-from-checkpoint --continue",
            "--fresh starts a new run beside an existing one": "--overwrite-output-dir --overwrite --force --yes",
            "--tensorboard; metrics.jsonl in the run folder has the figures": (
                "--report-to --wandb --wandb-log --wandb-project --logger --logger-name"
            ),
            "`minitf export RUN -o DIR` writes a folder for Hugging Face": "--push-to-hub --hub-model-id",
            "leave it out: model.safetensors is the best one": "--load-best-model-at-end --always-save-checkpoint",
            "eval.every_steps=N": "--eval-strategy --evaluation-strategy",
            "eval.tokens=N, of each evaluation but the last": "--eval-iters",
            "checkpoint.every_steps=N": "--save-strategy --save-interval",
            "train.epochs=N": "-e",
            "train.batch_size=N": "-b",
            "runtime.precision=fp16": "--fp16 --half",
            "runtime.precision=bf16": "--bf16",
            _LEAVE_OUT: "--do-train --do-eval --do-predict --preprocessing-num-workers --num-workers"
            " --dataloader-num-workers",
            "MINITF_CACHE=FOLDER is where tokenized data is kept": "--cache-dir --no-cache --overwrite-cache",
        }
    ),
    "serve": _by_word({"--host 0.0.0.0 lets other machines in; nothing is opened to the internet": "--share --public"}),
    "export": _by_word(
        {
            "-o DIR": "--out-dir",
            "--to FORMAT": "--format --type",
            "upload the folder of -o DIR with Hugging Face's client": "--push-to-hub --hub-model-id",
        }
    ),
    "convert": {"--to": "`minitf export RUN --to FORMAT -o DIR` writes formats of other tools"},
    "runs list": _by_word({"all runs are listed; --json prints them for programs": "--all -a --sort --filter --limit"}),
    "RUN": {
        "-m": _RUN_FIRST,
        "--model": _RUN_FIRST,
        "--out-dir": _RUN_FIRST,
        "--run": _RUN_FIRST,
        "--ckpt": _RUN_FIRST,
    },
    "RECIPE": {"--config": _RECIPE_FIRST, "--recipe": _RECIPE_FIRST},
    "TEXT": {"--text": "a text is an argument"},
    "-i": {"--file": "-i FILE"},
    "--data": {"--file": "--data FILE", "--input": "--data FILE"},
    "--step": {"--checkpoint": "--step N chooses a checkpoint"},
    "--device": _by_word({"--device cuda": "--gpu --cuda", "--device cpu": "--cpu --no-cuda --use-cpu"}),
    "--nproc": {"--gpus": "--nproc P", "--num-gpus": "--nproc P", "--n-gpu": "--nproc P", "--devices": "--nproc P"},
    "--head": {"--heads": "--head 0,2"},
    "--layer": {"--layers": "--layer 0,2"},
    "--output": {"--html": "-o FILE.html", "--save": "-o FILE", "--out": "-o FILE"},
}
"""What to type in place of an option, by command (`training` is pretrain and finetune), or by what the command has: an
argument or an option."""

VALUES = {
    "--split": _by_word({"a test set is a file: --data FILE": "test", "--split val": "validation valid dev eval"}),
}
"""What to type in place of a value, by option."""

WITHOUT_COMMAND = _by_word(
    {"`minitf --version`": "-V", "`minitf recipe list`, `minitf runs list`": "--list -l", "`minitf --help`": "-?"}
)
"""What to type in place of an option that stands before any command."""
