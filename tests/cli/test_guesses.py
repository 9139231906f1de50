"""Guesses of people who know other tools, among runs, recipes and files: each is answered by the one right command."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, minitf, refused
from test_entry_points import installed, installed_in
from typer.main import get_command

from mini_tf.cli.app import app
from mini_tf.cli.inspect_views import ViewCommand, view_called
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.loading import FLAGS, note_words, split_options
from mini_tf.cli.usage import hints
from mini_tf.cli.usage.other_tools import COMMANDS
from mini_tf.recipe.kind_folders import PACKAGES, find_kind
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.sections import Tokenizer
from mini_tf.run import manifest
from mini_tf.run.disk import Disk
from mini_tf.run.manifest import Manifest


@pytest.fixture(autouse=True)
def _among_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run `mine`, texts and a table."""
    monkeypatch.chdir(tmp_path)
    Path("outputs/mine").mkdir(parents=True)
    manifest.write(Path("outputs/mine"), Manifest(recipe="tiny", state="done"), Disk())
    Path("outputs/mine/resolved.yaml").write_text("data: {}\n")
    Path("my.txt").write_text("Once upon a time.\n")
    Path("reviews.csv").write_text("text,label\nnice,good\n")
    Path("alpaca.json").write_text('[{"instruction": "Add.", "input": "1 2", "output": "3"}]')
    Path("outputs/mine/checkpoints/step-00000060").mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.safetensors"):
        Path("outputs/mine", name).write_bytes(bytes(9))
    Path("gpt.pt").write_bytes(bytes(9))
    Path("outputs/mine/config.json").write_text("{}")
    Path("other.yaml").write_text("model: {n_layers: 2}\ntrain: {steps: 3}\n")
    Path("dotted.yaml").write_text("extends: quickstart\noptimizer.lr: 1\n")
    Path("chats.jsonl").write_text('{"messages": [{"role": "user", "content": "Hello"}]}\n')
    for name in ("other.csv", "other.conll"):
        Path(name).write_text("")
    for name in ("data", "tests", "a hub"):
        Path(name).mkdir()
    Path("a hub/config.json").write_text("{}")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        # an argument without its command
        ("quickstart", "the command comes first: minitf pretrain quickstart"),
        ("my.txt train.steps=3", "the command comes first: minitf pretrain my.txt train.steps=3"),
        ("mine", "the command comes first: minitf generate mine"),
        ("last", "the command comes first: minitf generate last"),
        ("recipe gpt-nano", "the command comes first: minitf recipe show gpt-nano"),
        ("data my.txt", "the command comes first: minitf data show my.txt"),
        ("tokenizer mine once", "the command comes first: minitf tokenizer encode mine once"),
        ("runs mine", "the command comes first: minitf runs show mine"),
        ("inspect mine once", "the view comes first: minitf inspect attention mine once"),
        # the command, the view or the run behind what belongs to it
        ("my.txt pretrain", "the command comes first: minitf pretrain my.txt"),
        ("train.steps=3 pretrain my.txt", "the command comes first: minitf pretrain train.steps=3 my.txt"),
        ("mine generate x", "the command comes first: minitf generate mine x"),
        ("inspect mine positions -o p.png", "the view comes first: minitf inspect positions mine -o p.png"),
        ("my.txt -n sweep train.steps=2", "the command comes first: minitf pretrain my.txt -n sweep train.steps=2\n"),
        ("inspect mine file model", "the view comes first: minitf inspect attention mine file model\n"),
        ("mine 'a b' evaluate", "the command comes first: minitf generate mine 'a b' evaluate\n"),
        ("mine runs show", "the command comes first: minitf runs show mine\n"),
        ("mine runs", "the command comes first: minitf runs show mine\n"),
        ("my.txt data stats", "the command comes first: minitf data stats my.txt\n"),
        ("mine inspect attention 'a b'", "the view comes first: minitf inspect attention mine 'a b'\n"),
        ("mine inspect heatmap 'a b'", "`minitf inspect attention mine 'a b'`\n"),
        ("my.txt train", "`minitf pretrain my.txt` from scratch"),
        ("mine compare last", "`minitf runs compare mine last`\n"),
        ("my.txt tests", "the command comes first: minitf pretrain my.txt tests\n"),
        # help, of commands of other tools too
        ("help pretrain", "`minitf pretrain --help`"),
        ("help --json Inspect_Attention", "`minitf inspect-attention --help`\n"),
        ("help inspect word", "`minitf inspect word --help`"),
        ("runs help list", "`minitf runs list --help`"),
        ("help run_mlm", "`minitf pretrain bert-nano my.txt`"),
        ("help", "`minitf --help`, `minitf COMMAND --help`"),
        ("help inspect heatmap", "`minitf inspect-attention RUN 'The file is closed.' -o heads.png`\n"),
        ("help runs delete", "`minitf runs rm RUN`\n"),
        ("runs help delete mine", "`minitf runs rm mine`\n"),
        ("help runs nonsense", "`minitf runs --help`\n"),
        ("help nonsense", "see `minitf --help`\n"),
        ("help " * 600, "`minitf --help`, `minitf COMMAND --help`"),
        ("Help.py " * 600 + "runs list", "`minitf runs list --help`\n"),
        ("mine help " * 600, "the command comes first: minitf generate mine mine"),
        # other names of views, and an example where nothing but a run is known
        ("inspect cross-attention mine", "`minitf inspect align mine`"),
        ("inspect heatmap mine", "`minitf inspect-attention mine 'The file is closed.' -o heads.png`\n"),
        (
            "inspect heatmap mine --step last",
            "`minitf inspect-attention mine 'The file is closed.' -o heads.png --step ",
        ),
        ("inspect heatmap mine -o a.png", "`minitf inspect-attention mine 'The file is closed.' -o a.png`\n"),
        ("inspect heatmap --full mine a", "`minitf inspect attention mine a --full`\n"),
        ("inspect neurons mine --text=a", "`minitf inspect memory mine --text=a`\n"),
        ("inspect self-attention", "`minitf inspect simple 'I love bears'`\n"),
        ("inspect self-attention mine", "`minitf inspect simple 'I love bears'`\n"),
        ("inspect self-attention mine 'a b'", "`minitf inspect simple 'a b'`\n"),
        ("inspect heatmap mine once", "`minitf inspect attention mine once`"),
        ("inspect neurons", "`minitf inspect memory RUN --corpus my.txt`"),
        ("inspect similarity mine a b", "`minitf inspect word mine a b`\n"),
        ("inspect similarity mine", "`minitf inspect word mine file -i sentences.txt`\n"),
        # several runs, data by name, formats
        ("diff mine last", "`minitf runs compare mine last`"),
        ("runs diff mine last", "`minitf runs compare mine last`"),
        ("plot mine --step last", "loss.svg in the run's folder; `minitf runs compare mine OTHER -o losses.png`\n"),
        ("sample --out_dir=mine --start 'a b'", "`minitf generate RUN 'a b'`\n"),
        ("sample --out_dir mine --start 'a b'", "`minitf generate mine 'a b'`\n"),
        ("plot mine", "loss.svg in the run's folder; `minitf runs compare mine OTHER -o losses.png`"),
        ("download shakespeare", "the text is a file: curl -LO https://"),
        ("datasets list", "`minitf recipe keys data.train.kind` names the built-in data"),
        ("recipes", "`minitf recipe list`"),
        ("pretrain --list-recipes", "`minitf recipe list`"),
        ("explain model.d_ff", "`minitf recipe keys KEY` explains a setting"),
        ("pretrain my.txt --model bert", "a recipe chooses the model: minitf pretrain bert-nano my.txt"),
        ("finetune sst2-nano reviews.csv --validation x.csv", "data.val=FILE"),
        ("inspect induction mine", "`minitf inspect-attention mine"),
        ("runs lits", "did you mean 'list'?"),
        ("pretrain bert-nano --data my.txt", "a data file is an argument: `minitf pretrain bert-nano my.txt`"),
        ("pretrain gpt-nano --train_file=my.txt", "a data file is an argument: `minitf pretrain gpt-nano my.txt`"),
        ("data stats my.txt --tokenizer mine", "settings are written without dashes: tokenizer.path=mine"),
        ("inspect mine", "the view comes first: minitf inspect model mine"),
        ("inspect embeddings mine", "`minitf embed mine -i texts.txt -o vectors.npy`"),
        ("inspect attention mine x --view head_view", "all heads are drawn; -o FILE.html is a page"),
        ("download sst2", "a data set of Hugging Face's hub: data.train=hf:nyu-mll/glue/sst2"),
        ("download gpt2", "`minitf import hf:gpt2` reads a model"),
        ("export mine gguf", "--to gguf -o DIR"),
        ("export mine hf", "-o DIR"),
        ("export mine HF", "-o DIR\n"),
        ("export mine --step last", "-o DIR\n"),
        ("export mine --step last --quiet", "-o DIR\n"),
        ("export mine -q folder --step last", "-o folder\n"),
        ("tokenizer train my.txt -q", "-o FILE\n"),
        ("tokenizer train --force my.txt new.json", "-o new.json\n"),
        ("tokenizer train my.txt other.csv", "for example: minitf tokenizer train my.txt"),
        ("export mine --to llama", "-o DIR"),
        ("export mine g.gguf", "--to gguf -o g"),
        ("tokenizer train my.txt tokenizer.vocab_size=500", "for example: minitf tokenizer train my.txt"),
        # a command of a group
        ("compare a b -o c.png", "`minitf runs compare a b -o c.png`"),
        ("encode mine x", "`minitf tokenizer encode mine x`"),
        ("keys", "`minitf recipe keys`"),
        ("rm mine", "`minitf runs rm mine`"),
        ("my.txt -n a", "the command comes first: minitf pretrain my.txt -n a"),
        # other tools
        ("head_view mine 'once upon'", "`minitf inspect-attention mine 'once upon' -o heads.png`"),
        ("finetune_lora mine", "`minitf finetune sst2-nano reviews.csv model.init_from=mine`, with adapter.kind=lora"),
        ("resume mine", "the command that started the run continues it; so does `minitf pretrain mine`"),
        ("run_clm.py my.txt", "`minitf pretrain my.txt` from scratch"),
        ("run_ner", "`minitf finetune wnut17-nano my.conll`"),
        ("merge_lora mine", "adapter.merge=true"),
        ("summary mine", "`minitf inspect model mine` shows its parameters, `minitf runs show mine` its settings"),
        ("stats mine", "`minitf data stats my.txt`, `minitf runs show mine`, `minitf tokenizer stats mine`"),
        ("tokenize my.txt", '`minitf tokenizer encode RUN "a text"`; `minitf data show my.txt`'),
        ("lora mine other.csv", "`minitf finetune sst2-nano other.csv model.init_from=mine`"),
        ("run_glue.py other.csv", "`minitf finetune sst2-nano other.csv`"),
        ("run_ner other.conll", "`minitf finetune wnut17-nano other.conll`"),
        ("text-classification mine 'a b'", "`minitf predict mine 'a b'`"),
        ("download gpt2", "`minitf import hf:gpt2`"),
        ("pull hf:me/small --json", "`minitf import hf:me/small`"),
        ("count my.txt", "`minitf data stats my.txt`"),
        ("params bert-nano", "`minitf cost bert-nano` measures"),
        ("quantize mine", "nothing is quantized here; `minitf export mine --to gguf -o DIR`"),
        ("inspect parameters mine", "`minitf inspect model mine`"),
        ("inspect Head_View mine 'once upon'", "`minitf inspect attention mine 'once upon'`"),
        ("inspect neurons mine", "`minitf inspect memory mine --corpus my.txt`"),
        ("inspect logits mine x", '`minitf generate mine "a prompt" --logprobs 5`'),
        ("runs delete x", "`minitf runs rm RUN`"),
        ("lr=3", "the command comes first: minitf pretrain lr=3"),
        # options
        ("pretrain --config x", "a recipe is an argument: minitf pretrain recipe.yaml"),
        ("finetune --model_name_or_path x", "model.init_from=RUN, or model.init_from=hf:NAME"),
        ("generate mine --max_length 3", "--max-new-tokens N counts the new tokens alone"),
        ("generate mine --file x", "-i FILE"),
        ("evaluate mine --file x", "--data FILE"),
        ("predict --model=mine", "the run is the first argument: minitf predict RUN"),
        ("recipe list --model=mine", "see `minitf recipe list --help`"),
        ("inspect simple --run mine", "see `minitf inspect simple --help`"),
        ("data show --recipe x", "a recipe is an argument: minitf data show recipe.yaml"),
        ("export mine --out-dir x", "-o DIR"),
        ("--json runs list", "options stand behind the command: minitf runs list --json"),
        ("-V", "`minitf --version`"),
        ("generate mine x --temp 0.8", "--temperature T"),
        ("chat mine --temp=0.8", "--temperature T"),
        ("generate -m mine", "the run is the first argument: minitf generate RUN"),
        ("generate mine x --gpu", "--device cuda"),
        ("pretrain my.txt --gpus 2", "--nproc P"),
        ("pretrain my.txt --bf16 True", "runtime.precision=bf16"),
        (
            "pretrain my.txt --max_iters=9 -q --batch_size 4",
            "settings are written without dashes: train.steps=9 train.",
        ),
        ("pretrain my.txt --seed 'a b'", "settings are written without dashes: 'train.seed=a b'"),
        ("finetune reviews.csv --text_column a", "'data.fields={text: COLUMN, label: COLUMN}'"),
        ("pretrain my.txt --init_from=resume", "model.init_from=RUN or model.init_from=hf:NAME; the same command"),
        ("evaluate mine --split test", "a test set is a file: --data FILE"),
        ("evaluate mine --split=dev", "--split val"),
        ("evaluate test --split tset", "see `minitf evaluate --help`"),
        ("data show my.txt --split test", "a test set is a file\n"),
        ("pretrain my.txt --tokenizer char", "tokenizer.kind=KIND, or tokenizer.path=FILE"),
        ("pretrain my.txt --overwrite_output_dir", "--fresh starts a new run beside an existing one"),
        ("predict mine x --top_k 2", "--top N"),
        ("predict mine -i reviews.csv --text-column x", "--fields '{text: COLUMN}'"),
        ("convert mine --to gguf", "`minitf export RUN --to FORMAT -o DIR` writes formats of other tools"),
        ("serve mine --share", "--host 0.0.0.0 lets other machines in"),
        ("evaluate mine -o m.json", "--json prints them for programs: minitf evaluate RUN --json > FILE"),
        ("inspect attention mine x --heads 0", "--head 0,2"),
        ("inspect attention mine x --html", "-o FILE.html"),
        # what is missing, or too much
        ("generate", 'for example: minitf generate last "The file is" --temperature 0.7'),
        ("export mine folder", "-o folder"),
        ("export mine -o folder --format gguf", "--to FORMAT"),
        ("evaluate mine my.txt", "--data my.txt"),
        ("evaluate mine no.txt", "see `minitf evaluate --help`"),
        ("runs show mine my.txt", "see `minitf runs show --help`"),
    ],
)
def test_a_guess_is_answered_by_the_right_command(typed: str, answer: str) -> None:
    done = minitf(*shlex.split(typed))
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.partition("; ")[2].startswith(answer), done.stderr


@pytest.mark.parametrize(
    ("typed", "answer", "exit_code"),
    [
        (
            "finetune mine reviews.csv",
            "mine is a run, whose recipe would train from scratch on these data; `minitf finetune sst2-nano"
            " reviews.csv model.init_from=mine` starts from its weights",
            2,
        ),
        (
            "finetune outputs/mine my.txt",
            "`minitf finetune outputs/mine my.txt model.init_from=outputs/mine`",
            2,
        ),
        ("finetune reviews.csv -n a", "no recipe given; use `minitf finetune sst2-nano reviews.csv -n a`", 2),
        (
            "finetune alpaca.json -n a",
            "`jq -c '.[]' alpaca.json > alpaca.jsonl; minitf finetune instruct-nano alpaca.jsonl -n a`",
            2,
        ),
        ("import mine", "outputs/mine: a run of minitf; all commands and model.init_from take it as it is", 5),
        ("import outputs/mine/model.safetensors", "outputs/mine: a run of minitf; all commands", 5),
        ("evaluate my.txt", "the run comes first: `minitf evaluate last --data my.txt`", 5),
        ("predict my.txt --top 2", "the run comes first: `minitf predict last -i my.txt --top 2`", 5),
        ("evaluate my.txt --step last", "`minitf evaluate last --data my.txt --step last`\n", 5),
        ("predict -q my.txt --step last mine", "`minitf predict mine -i my.txt -q --step last`", 5),
        ("embed mine -i my.tx -o a.npy", "--input my.tx: No such file or directory; did you mean my.txt?", 4),
        ("pretrain my.tx", "no such file my.tx; did you mean 'my.txt'?", 2),
        ("pretrain review", "no such file review; did you mean 'reviews.csv'?", 2),
        ("pretrain test", "or KEY=VALUE; see `minitf recipe list`", 2),
        ("pretrain configs/bert-nano.yaml", "no such file; did you mean 'bert-nano'?", 3),
        ("pretrain hf:imdb", "a data set of Hugging Face's hub: data.train=hf:stanfordnlp/imdb", 2),
        ("pretrain hf:me/imdb", "a model of Hugging Face's hub: model.init_from=hf:me/imdb", 3),
        ("pretrain data=my.txt", "data=my.txt: must be a mapping of keys, such as {train: my.txt}", 3),
        ("finetune gpt2 my.txt", "a model of Hugging Face's hub: model.init_from=hf:gpt2", 2),
        (
            "finetune model.init_from=hf:gpt2 my.txt",
            "`minitf pretrain model.init_from=hf:gpt2 my.txt`, which continues on plain text",
            2,
        ),
        ("pretrain tinyshakespeare", "tinyshakespeare/input.txt; minitf pretrain input.txt", 2),
        (
            "pretrain WikiText-2",
            "a data set of Hugging Face's hub: data.train=hf:Salesforce/wikitext/wikitext-2-raw",
            2,
        ),
        ("pretrain hf:roneneldan/TinyStories", "hub: data.train=hf:roneneldan/TinyStories", 3),
        ("pretrain python-docs", "built-in data: data.train=python-docs", 2),
        ("export mine -o model.onnx", "a folder is written, not a file; --to onnx -o model", 2),
        ("export mine -o model.pt", "a folder is written, not a file; -o model", 2),
        ("generate lats x", "no such run: lats; did you mean last?", 5),
        ("generate nowhere x", "no such run: nowhere; `minitf runs list` lists all runs", 5),
        ("generate mine x --temperature 1000", "--temperature: must be at most 100, got 1000", 2),
        ("generate mine x --step many", "no such checkpoint: 'many'; use a step number, `last` or `best`", 2),
        (
            "pretrain val=0.1",
            "command line: val=0.1: no such key; did you mean data.split (a share such as 10%; data.val names a file)?",
            3,
        ),
        ("generate gpt2 x", "a model of Hugging Face's hub: `minitf import hf:gpt2`", 5),
        ("import bert-base-uncased", "of Hugging Face's hub: `minitf import hf:bert-base-uncased`", 5),
        ("import nowhere", "nowhere: not a folder; give a folder with config.json", 5),
        ("export mine -o folder --to huggingface", "leave --to out: the folder is for Hugging Face", 2),
        ("export mine -o folder --to HF", "leave --to out: the folder is for Hugging Face", 2),
        (
            "pretrain dotted.yaml",
            "optimizer.lr: no such key; in a file it is written nested, at the top level: `optim",
            3,
        ),
        ("pretrain gpt my.txt", "did you mean 'gpt-nano'?", 2),
        ("pretrain optimizer=adam lr=3e-4", "did you mean optimizer.lr?", 3),
        ("pretrain other.yaml", "other.yaml:1: model: must be a kind, one of", 3),
        ("data show chats.jsonl", "'text' must be text, not dict; chats are for the objective instruct", 4),
        ("generate mine -", "- is not a text; -i - reads a text from each line of stdin", 2),
        ("pretrain fp16=true", "fp16=true: no such key; did you mean runtime.precision (fp32, bf16 or fp16)?", 3),
        ("pretrain devices=2", "devices=2: no such key; --nproc N is the number of processes", 3),
        ("pretrain optimizer.name=adamw", "no such key; did you mean optimizer.kind?", 3),
        ("pretrain tokenizer.type=bpe", "no such key; did you mean tokenizer.kind?", 3),
        ("pretrain tokenizer=gpt2", "such as {kind: bpe} or {path: FILE}, got 'gpt2'", 3),
        ("pretrain objective=mlm", "no such kind 'mlm'; did you mean 'masked'?", 3),
        ("pretrain model.positions.kind=RoPE", "no such kind 'RoPE'; did you mean 'rotary'?", 3),
        (
            "inspect attention mine 0123456789.txt",
            "0123456789.txt: no such file; the name itself as a text: from stdin",
            2,
        ),
        ("predict mine review.csv", "review.csv: no such file; did you mean reviews.csv?", 2),
        ("generate mine reviews.csv", "reviews.csv is a file, not a text; --input reviews.csv reads its texts", 2),
        ("pretrain help", "did you mean --help?", 2),
        (
            "pretrain transformer-nano data.train={source: a.de, target: b.en}",
            "put it in quotes: 'data.train={source:",
            2,
        ),
        ("pretrain tokenizer={kind: char} my.txt", "ends in a bracket; put it in quotes: 'tokenizer={kind: char}'", 2),
        ("pretrain transformer-nano my.txt my.txt", "of these two files: 'data.train={source: /", 3),
        ("pretrain train.freeze=true", "got 'true'; a list is in brackets: [a, b]", 3),
        ("pretrain optimizer.betas=0.9,0.95", "a list is in brackets: [0.9,0.95]", 3),
        ("pretrain num_labels=3", "did you mean objective.labels (a list, as [neg, pos]; without it", 3),
        ("pretrain output_dir=x", "no such key; -d DIR or -n NAME chooses the run folder", 3),
        ("pretrain train_file=x", "no such key; did you mean data.train?", 3),
        ("pretrain my.txt tokenizer.path=hf:a/gpt2", "`minitf import hf:a/gpt2` makes a run, whose name", 4),
        ("inspect positions mine --device gpu", "--device 'gpu': must be auto, cpu, cuda, cuda:N or mps", 2),
    ],
)
def test_a_guess_that_is_a_command_is_not_misunderstood(typed: str, answer: str, exit_code: int) -> None:
    refused(minitf(*typed.split()), answer, exit_code=exit_code)


COMMANDS_OF_A_RUN = (
    *("generate", "chat", "predict", "evaluate", "serve", "inspect model", "inspect attention", "tokenizer encode"),
    *("runs show", "runs rm --yes", "runs compare mine", "export -o folder", "embed -o a.npy x"),
)


@pytest.mark.parametrize("command", COMMANDS_OF_A_RUN)
def test_a_file_of_a_run_in_place_of_the_run_is_answered_with_its_folder(command: str) -> None:
    first, *more = command.partition(" -")[0].split()
    options = command.removeprefix(" ".join([first, *more])).split()
    for part, way in {
        "outputs/mine/model.safetensors": "",
        "mine/optimizer.safetensors": "",
        "outputs/mine/checkpoints/step-00000060": "; its checkpoint: --step 60",
    }.items():
        done = minitf(first, *more, part, *options)
        answer = f"the run is its folder: outputs/mine{'' if first in ('runs', 'tokenizer') else way}\n"
        if command == "runs rm --yes":
            answer = "it is a part of outputs/mine, and runs are removed whole"
        refused(done, f"no such run: {part}; {answer}", exit_code=5)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("pretrain outputs/mine/run.json", "run.json is no recipe; the run is its folder: outputs/mine"),
        ("pretrain outputs/mine/checkpoints/step-00000060", "the run is its folder: outputs/mine"),
        ("pretrain outputs/mine/checkpoints/step-00000030", "the run is its folder: outputs/mine"),
        ("pretrain model.init_from=outputs/mine/model.safetensors", "the run is its folder: model.init_from=/"),
        ("pretrain outputs/mine/model.safetensors", "safetensors is no recipe; the run is its folder: outputs/mine"),
        ("finetune mine/run.json reviews.csv", "no such file; the run is its folder: outputs/mine"),
        ("finetune outputs/mine/model.safetensors reviews.csv", "no recipe; the run is its folder: outputs/mine"),
        ("pretrain gpt.pt", "gpt.pt is a model's weights; model.init_from=FOLDER starts from the run or the"),
    ],
)
def test_a_file_of_a_run_in_place_of_a_recipe_is_answered_with_its_folder(typed: str, answer: str) -> None:
    done = minitf(*typed.split())
    refused(done, answer, exit_code=done.exit_code)
    assert done.exit_code in (2, 3, 4)


def test_only_what_a_run_writes_stands_for_it_also_from_within(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.json").write_text("[]")
    monkeypatch.chdir("outputs/mine")
    Path("outputs/other").mkdir(parents=True)
    shutil.copy("run.json", "outputs/other")
    Path("note.txt").write_text("Once upon a time.\n")
    for text in ("../../my.txt", "note.txt"):
        answer = f"the run comes first: `minitf evaluate last --data {text}`"
        refused(minitf("evaluate", text), answer, exit_code=5)
    refused(minitf("evaluate", "../../my.json"), "`minitf evaluate last --data ../../my.json`", exit_code=5)
    refused(minitf("evaluate", "model.safetensors"), "the run is its folder: .\n", exit_code=5)
    Path("tokenizer.model").write_bytes(bytes(9))
    assert minitf("tokenizer", "stats", "tokenizer.model").exit_code == 4  # it is read


COLUMNS = {
    "a.csv": ("title,abstract,category\n", "sst2-nano"),
    "b.csv": ("response,label\n", "sst2-nano"),
    "c.csv": ("text,tags\n", "sst2-nano"),
    "d.csv": ('"article","summary"\n', "summarize-nano"),
    "e.jsonl": ('{"text": "a", "label": "b", "of": {"summary": 1}}\n', "sst2-nano"),
    "f.jsonl": ('{"text": "a", "kind": "b", "of": {"summary": 1}}\n', "sst2-nano"),
    "g.jsonl": ('{"tokens": ["a"], "tags": ["O"]}\n', "wnut17-nano"),
    "h.jsonl": ('{"instruction": "a", "response": "b", "category": "c"}\n', "instruct-nano"),
    "i.jsonl": ('{"text": ' + "[" * 9999, "sst2-nano"),
    "j.tsv": ("source\ttarget\n", "transformer-nano"),
    "k.csv": ("de,en\n", "transformer-nano 'data.fields={source: de, target: en}'"),
    "l.csv": ("text,target\n", "sst2-nano"),
    "m.csv": ("text,label,source\n", "sst2-nano"),
    "n.csv": ("article,highlights,source\n", "summarize-nano"),
    "o.csv": ("id,up\n", "sst2-nano"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_columns_of_a_table_say_what_it_is_for(name: str) -> None:
    content, recipe = COLUMNS[name]
    Path(name).write_text(content)
    refused(minitf("finetune", name), f"no recipe given; use `minitf finetune {recipe} {name}`", exit_code=2)


def test_a_command_to_paste_overwrites_no_file_and_keeps_the_name_of_the_run() -> None:
    Path("alpaca.jsonl").write_text("{}\n")
    answer = "`jq -c '.[]' alpaca.json > alpaca-2.jsonl; minitf finetune instruct-nano alpaca-2.jsonl`"
    refused(minitf("finetune", "alpaca.json"), answer, exit_code=2)
    named = "`minitf finetune sst2-nano reviews.csv -n mine model.init_from=mine` starts from its weights"
    refused(minitf("finetune", "mine", "reviews.csv", "-n", "mine"), named, exit_code=2)


def test_an_adapter_that_is_called_like_a_run_is_imported_as_the_adapter() -> None:
    Path("mine").mkdir()
    Path("mine/adapter_config.json").write_text('{"peft_type": "IA3"}')
    for source in ("mine", "./mine"):
        done = minitf("import", source, "-d", "new")
        refused(done, "IA3", exit_code=5)
        assert "outputs" not in done.stderr


@pytest.mark.parametrize("command", ["generate", "predict", "inspect attention", "tokenizer encode"])
def test_a_text_in_place_of_a_run_is_answered_with_the_whole_command(command: str) -> None:
    done = minitf(*command.split(), "The file is", "--json")
    answer = f"no such run: The file is; the run comes first: `minitf {command} last 'The file is' --json`\n"
    assert done.exit_code == 5
    assert done.stderr == answer


@pytest.mark.parametrize("command", ["evaluate", "chat", "export -o folder", "inspect positions", "runs show"])
def test_a_text_for_a_command_without_texts_is_no_part_of_its_answer(command: str) -> None:
    done = minitf(*command.split(), "The file is")
    answer = "the run comes first: `last` is the newest, `minitf runs list` lists all"
    refused(done, f"no such run: The file is; {answer}\n", exit_code=5)
    refused(minitf(*command.split(), "mi ne"), "no such run: mi ne; did you mean mine?", exit_code=5)


def test_a_text_before_its_run_changes_places_with_it() -> None:
    answer = "the run comes first: `minitf inspect attention mine 'The file is' -o a.png`\n"
    refused(minitf("inspect", "attention", "The file is", "mine", "-o", "a.png"), answer, exit_code=5)


def test_a_run_that_is_the_value_of_an_option_stays_there() -> None:
    for before, options in (((), "--step last"), (("--greedy",), "--greedy --step last"), (("-q",), "-q --step last")):
        done = minitf("generate", *before, "The file is", "--step", "last")
        refused(done, f"the run comes first: `minitf generate last 'The file is' {options}`\n", exit_code=5)


def test_without_any_run_a_text_or_file_in_its_place_is_not_answered_with_last() -> None:
    shutil.rmtree("outputs")
    for command, what in (("generate", "The file is"), ("evaluate", "my.txt"), ("runs show", "The file is")):
        answer = f"no such run: {what}; the run comes first: `minitf pretrain` creates one\n"
        refused(minitf(*command.split(), what), answer, exit_code=5)


def test_a_folder_of_the_hub_with_a_blank_is_quoted_in_its_command() -> None:
    refused(minitf("generate", "a hub", "x"), "`minitf import 'a hub'` makes a run", exit_code=5)
    assert Tokenizer(path="a").argument("outputs/a b") == "'tokenizer.path=outputs/a b'"
    assert Tokenizer(path="a", pad="[P]").argument("a") == """'tokenizer={path: a, pad: "[P]"}'"""


def test_a_key_is_listed_by_its_last_word() -> None:
    lines = minitf("recipe", "keys", "lr").stdout.splitlines()
    assert lines
    assert {line.split()[0] for line in lines} == {"optimizer.lr"}


def test_keys_are_searched_by_a_part_of_their_names_or_of_their_meaning() -> None:
    names = {line.split()[0] for line in minitf("recipe", "keys", "smoothing").stdout.splitlines()}
    assert "objective.label_smoothing" in names
    lines = minitf("recipe", "keys", "Coverage").stdout.splitlines()
    assert lines
    assert all("coverage" in line.lower() for line in lines)
    assert minitf("recipe", "keys", "block_size").stdout.startswith("train.context ")
    assert minitf("recipe", "keys", "model.dropout").stdout.startswith("model.dropout_rate")
    for typed, shown in (("xyzzy", "'xyzzy'"), ("", "nothing")):
        done = minitf("recipe", "keys", typed)
        refused(done, f"no such section {shown}; see `minitf recipe keys`", exit_code=2)


@pytest.mark.parametrize("package", PACKAGES)
def test_another_name_of_a_kind_is_that_of_one_kind_and_no_kind_itself(package: str) -> None:
    kinds = kinds_of(package)
    named = [alias for kind in kinds.values() for alias in kind.ALIASES]
    assert len(set(named)) == len(named)
    assert not {*named} & {*kinds}
    written = "_" if package == "inspection" else "-"  # a view is a command, any other kind a value of a recipe
    assert not [alias for alias in named if written in alias or alias != alias.lower()]


def test_every_view_has_another_name() -> None:
    views = kinds_of("inspection")
    named = [alias for view in views.values() for alias in view.ALIASES]
    assert {called.word for alias in named if (called := view_called(alias))} == {*views}
    assert view_called("nonsense") is None
    assert {*COMMANDS["minitf inspect"]} & {*named} == set()


@pytest.mark.parametrize("options", ["", "mine", "--json", "mine --json -q"])
def test_the_example_that_answers_another_name_of_a_view_is_a_command(options: str) -> None:
    for view, kind in kinds_of("inspection").items():
        line = hints._for_view(kind.ALIASES[0], options.split())
        assert line is not None
        [program, command, *words] = shlex.split(line.strip("`"))
        assert (program, "attention" if command == "inspect-attention" else words.pop(0)) == ("minitf", view)
        given = ViewCommand(find_kind("inspection", view)).make_context(view, words).params
        run = "mine" if "mine" in options else "RUN"
        assert given.get("run", given.get("source", run)) == run
        assert given["json"] == ("--json" in options)


def test_what_is_given_is_put_into_a_hint_once() -> None:
    shutil.copytree("outputs/mine", "outputs/RUN2")
    shutil.copytree("outputs/mine", "outputs/FILE")
    answer = "`minitf runs compare mine RUN2 FILE`\n"
    refused(minitf("diff", "mine", "RUN2", "FILE", "my.txt", "a text"), answer, exit_code=2)


VIEW = """\
from {module} import {base}


class Settings({base}):
    \"\"\"Show something.\"\"\"

    ALIASES = ("other-{alias}",)
"""


def test_a_view_of_a_package_is_answered_without_examples_or_its_imports(tmp_path: Path) -> None:
    bases = {
        "ViewSettings": "mini_tf.inspection",
        "ModelViewSettings": "mini_tf.inspection",
        "Nothing": "nowhere_at_all",
    }
    files = {
        f"inspection/my_{n}.py": VIEW.format(module=bases[base], base=base, alias=base.lower())
        for n, base in enumerate(bases)
    }
    with installed_in(installed(tmp_path / "installed", "my-views", "1", files)):
        for typed, answer in (
            ("other-viewsettings mine", "my_0"),
            ("other-modelviewsettings", "my_1 RUN"),
            ("other-modelviewsettings mine -q", "my_1 mine -q"),
            ("other-nothing mine", "my_2"),
        ):
            refused(minitf("inspect", *typed.split()), f"; `minitf inspect {answer}`\n", exit_code=2)


def test_options_and_their_values_are_parted_from_words() -> None:
    shared = [parameter for parameter in get_command(app).commands["doctor"].params if parameter.name in SHARED]
    assert {*FLAGS} == {"-h", "--help", *(name for flag in shared for name in flag.opts)}
    for typed, words in {
        "a -n b c": "a c",
        "a --name=b c": "a c",
        "a --json b": "a b",
        "a --layer -1 b": "a b",
        "a -n -q b": "a b",
        "a --": "a",
        "- -1 a": "- -1 a",
        "a -full b": "a b",
    }.items():
        left, options = split_options(typed.split())
        assert left == words.split()
        assert sorted([*left, *options]) == sorted(typed.split())
    assert split_options(["--greedy", "a"], ["--greedy"]) == (["a"], ["--greedy"])


def test_only_words_of_scripts_with_blanks_are_said_to_need_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    for texts, said in {
        ("Once", "upon"): True,
        ("Žluťoučký", "кот", "don't"): True,
        ("Once",): False,
        ("Once", "a day"): False,
        ("今天天气很好。", "我们去公园。"): False,
        ("Once", "สวัสดีครับ"): False,
        ("", ""): False,
        ("Once", ""): False,
    }.items():
        note_words(Console(), texts)
        assert ("one word each" in capsys.readouterr().err) == said, texts


SHARED = ("quiet", "verbose", "json", "debug")
"""Options of every command that take no value."""
BEFORE_TORCH = (
    "generate nowhere x",
    "chat nowhere",
    "generate mine x --temperature 1000",
    "generate mine reviews.csv",
    "generate mine x --step 7",
    "predict nowhere x",
    "predict mine x --device gpu",
    "evaluate nowhere",
    "evaluate mine --step best",
    "export nowhere -o folder",
    "import hf:a/b/c",
    "inspect model nowhere",
    "inspect attention mine x -o heads.xyz",
    "inspect softmax mine --no-such",
    "runs show nowhere",
    "runs rm nowhere --yes",
    "runs compare nowhere mine",
)


def test_what_is_wrong_with_a_command_line_is_said_before_torch_is_imported() -> None:
    code = ["import sys; from mini_tf.cli.app import main"]
    for line in BEFORE_TORCH:
        code.append(
            f"try: main({line.split()!r})\nexcept SystemExit as leaving: assert leaving.code in (2, 5), {line!r}"
        )
        code.append(f"assert 'torch' not in sys.modules, {line!r}")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(BEFORE_TORCH)
