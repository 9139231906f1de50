"""Commands and options of other tools, and words that people try, with what minitf has in their place.

A row is the words and, behind " = ", their hint; a line that is indented continues the row.
"""

Table = dict[str, dict[str, str]]
"""In each group the hints by word."""


def _table(text: str) -> Table:
    groups: Table = {}
    for row in text.strip().replace("\n    ", " ").splitlines():
        if row.startswith("["):
            hints = groups.setdefault(row.strip("[]"), {})
        else:
            words, _, hint = row.partition(" = ")
            hints |= dict.fromkeys(words.split(), hint)
    return groups


COMMANDS = _table("""
[minitf]
train fit learn new create trainer run-clm causal-lm language-modeling torchrun litgpt nanogpt =
    `minitf pretrain my.txt` from scratch, `minitf finetune RECIPE` on a task
run-mlm mlm masked-lm = `minitf pretrain bert-nano my.txt`
run-glue run-classification run-text-classification text-classification sequence-classification =
    `minitf finetune sst2-nano reviews.csv`
run-ner token-classification = `minitf finetune wnut17-nano my.conll`
run-summarization = `minitf finetune summarize-nano`
run-translation = `minitf pretrain transformer-nano`
merge-lora merge-adapter = adapter.merge=true adds the adapter to the run's model.safetensors
run start demo try = `minitf pretrain` trains, `minitf generate last "a prompt"` continues a text
fine-tune tune sft lora qlora peft finetune-lora finetune-full finetune-adapter =
    `minitf finetune sst2-nano reviews.csv model.init_from=RUN`, with adapter.kind=lora if only an adapter is to be
    trained
sample complete completion infer inference gen prompt ask text-generation pipeline run-generation =
    `minitf generate RUN "a prompt"`
fill fill-mask mask unmask = `minitf generate RUN "a [MASK]"` of an encoder
translate summarize translation summarization = `minitf generate RUN "a text"`, `minitf generate RUN -i texts.txt`
batch = `minitf generate RUN -i texts.txt`
classify label tag ner sentiment regress = `minitf predict RUN "a text"`
eval test validate score perplexity ppl metrics bleu lm-eval run-eval =
    `minitf evaluate RUN --split val`, `minitf evaluate RUN --data FILE`
explain = `minitf recipe keys KEY` explains a setting; `minitf inspect-attention RUN "a text"` what heads do
attention visualize bertviz head-view model-view neuron-view heatmap view attn =
    `minitf inspect-attention RUN "a text" -o heads.png`
embedding embeddings vectors retrieve = `minitf embed RUN -i texts.txt -o vectors.npy`
search grid optuna ablate hyperopt hpo =
    `minitf sweep RECIPE 'optimizer.lr=[0.01,0.02]'` tries settings; `minitf pretrain RECIPE train.seeds=3` several
    seeds
similarity = `minitf inspect word RUN WORD -i sentences.txt`
tokens = `minitf tokenizer encode RUN "a text"`
tokenize tokenise = `minitf tokenizer encode RUN "a text"`; `minitf data show my.txt`
summary params parameters count weights architecture arch describe details print size =
    `minitf inspect model RUN` shows its parameters, `minitf runs show RUN` its settings and metrics
stats statistics = `minitf data stats my.txt`, `minitf runs show RUN`, `minitf tokenizer stats RUN`
bench benchmark profile estimate flops speed = `minitf cost RECIPE` measures time, memory and FLOPs
plan = `minitf cost RECIPE` measures; mini_tf/parallel/README.md has the arithmetic for many devices
download pull load fetch get from-pretrained hub convert-hf-checkpoint convert-pretrained-checkpoint =
    `minitf import hf:NAME` reads a model of Hugging Face's hub, data.train=hf:NAME a data set
save push push-to-hub upload publish convert-to-hf convert-hf convert-to-litgpt convert-from-litgpt save-pretrained
    convert-lit-checkpoint =
    `minitf export RUN -o DIR` writes a folder for Hugging Face
ls status ps jobs history experiments = `minitf runs list`
list models = `minitf runs list`, `minitf recipe list`
recipes presets = `minitf recipe list`
datasets corpora = `minitf recipe keys data.train.kind` names the built-in data; `minitf data show my.txt`
log logs tail watch = `minitf runs show RUN`; the messages are in log.txt of its folder
info env system devices gpu = `minitf doctor` for this machine, `minitf runs show RUN` for a run
plot curves loss = loss.svg in the run's folder; `minitf runs compare RUN OTHER -o losses.png`
diff = `minitf runs compare RUN OTHER`
tensorboard wandb mlflow track = `minitf pretrain RECIPE --tensorboard` writes event files
stop kill cancel pause = Ctrl-C (or kill PID) stops a run after saving; the same command continues it
resume continue restart = the command that started the run continues it; so does `minitf pretrain RUN`
remove delete del clean = `minitf runs rm RUN`
quantize quantise = nothing is quantized here; `minitf export RUN --to gguf -o DIR` writes a file for llama.cpp, which
    quantizes
prune distill dpo rlhf ppo grpo rag = there is nothing of this kind here; `minitf --help` lists what it has
cp copy mv move rename = a run is a folder: mv outputs/OLD outputs/NEW, cp -r outputs/OLD outputs/NEW
install update upgrade setup = `minitf doctor` shows what is installed; pip installs
help docs doc tutorial examples example guide man =
    `minitf --help`, `minitf COMMAND --help`; README.md, recipes/tutorial.md
config cfg settings = `minitf recipe show RECIPE`
init = `minitf recipe init my.yaml` writes a recipe; `minitf pretrain my.txt` needs none
prep prepare preprocess dataset prepare-data =
    `minitf pretrain my.txt` splits and tokenizes the text itself; `minitf data show RECIPE` shows it
server api web ui gui app deploy gradio =
    `minitf serve RUN` answers over HTTP, with a page to try it; `minitf chat RUN` in the terminal
average merge = `--average N` of generate and evaluate averages checkpoints
version = `minitf --version`
[minitf runs]
ls status all best = `minitf runs list`
info details describe view open log logs tail cat plot loss curves =
    `minitf runs show RUN`; log.txt and loss.svg are in the run's folder
diff = `minitf runs compare RUN OTHER`
delete remove del clean prune = `minitf runs rm RUN`
mv move rename cp copy = a run is a folder: mv outputs/OLD outputs/NEW, cp -r outputs/OLD outputs/NEW
[minitf recipe]
keys-of options params help search find = `minitf recipe keys SECTION`
new create edit copy save export dump = `minitf recipe init my.yaml --from PRESET` writes one to edit
validate verify lint test = `minitf recipe check RECIPE`
get print cat view info describe diff = `minitf recipe show RECIPE`
[minitf data]
list ls = `minitf recipe keys data.train.kind` names the built-in data; `minitf data show my.txt`
head preview view print sample = `minitf data show my.txt`
info describe count summary = `minitf data stats my.txt`
validate verify lint clean = `minitf data check RECIPE`
prepare preprocess tokenize split build download =
    `minitf pretrain my.txt` splits and tokenizes the text itself; `minitf data show RECIPE` shows it
[minitf tokenizer]
tokenize tokens split pieces show = `minitf tokenizer encode RUN "a text" --pieces`
info vocab vocabulary size test inspect = `minitf tokenizer stats RUN "a text"`
new create build fit = `minitf tokenizer train my.txt -o tokenizer.json`
[minitf inspect]
embedding embeddings vectors =
    `minitf embed RUN -i texts.txt -o vectors.npy` writes them, `minitf inspect word RUN WORD -i texts.txt` compares
logits logprobs probabilities predictions = `minitf generate RUN "a prompt" --logprobs 5`
loss losses curves training metrics run = `minitf runs show RUN`; loss.svg is in its folder
""")
"""What to type in place of a command, by the group that lacks it."""

OPTIONS = _table("""
[generate]
--beam-size --beams = --num-beams
--n --num-return-sequences --samples --count = --num-samples N
-n = --num-samples N, or --max-new-tokens N
--max-tokens --length --tokens --num-tokens --n-tokens --n-predict = --max-new-tokens N
--max-length = --max-new-tokens N counts the new tokens alone
--min-length = --min-new-tokens N, of an encoder-decoder
--no-repeat-ngram-size = --no-repeat-ngram N, of an encoder-decoder
--temp -t = --temperature T
-k --topk = --top-k K
--topp = --top-p P
--do-sample = texts are sampled unless --greedy is given, or a run is an encoder or an encoder-decoder
--prompt --start --text -p = the prompt is an argument: minitf {command} RUN "a prompt"
--interactive --chat = `minitf chat RUN`
--pad-token-id --eos-token-id --early-stopping --use-cache --trust-remote-code = leave it out
--output --out -o = the result is on stdout: minitf {command} RUN ... > FILE
[predict]
--top-k --topk = --top N
--proba --probs --probabilities --scores --return-all-scores = the probabilities are printed without it
--text-column --text-column-name --column --columns --label-column = --fields '{{text: COLUMN}}'
--output --output-file --out -o --format --csv = the result is on stdout: minitf {command} RUN ... > FILE
[evaluate]
--metric --metrics --perplexity --ppl = all metrics are printed; --assert 'loss<5' checks one
--out = --json prints them for programs: minitf {command} RUN --json > FILE
--test --test-file --input -i --dataset --file --validation-file = --data FILE
--tasks --task = --babylm DIR: BabyLM's tasks; --pairs FILE: such pairs; other benchmarks are not here
--batch-size --limit --max-samples --max-eval-samples = leave it out
[training]
--checkpoint --ckpt --pretrained = model.init_from=RUN starts from the weights of a run
--config --recipe -c = a recipe is an argument: minitf {command} recipe.yaml
--data --dataset --text --train-file --input -i = a data file is an argument: {moved}
--dataset-name --dataset-config-name =
    a data file is an argument: minitf {command} my.txt; or data.train=FILE, data.train=hf:NAME
--validation-file --validation --val-file --val-data --val --dev --eval-file =
    data.val=FILE, or data.split=10% of the training data
--test --test-file = `minitf evaluate RUN --data FILE` afterwards
--init-from = model.init_from=RUN or model.init_from=hf:NAME; the same command continues a run
--text-column --text-column-name --label-column --label-column-name --column --columns --fields =
    'data.fields={{text: COLUMN, label: COLUMN}}'
--header --no-header = data.header=false if the first row is no header
--model -m = a recipe chooses the model: minitf {command} bert-nano my.txt; model.init_from=RUN starts from a run
--model-name-or-path --checkpoint-dir = model.init_from=RUN, or model.init_from=hf:NAME
--tokenizer --tokenizer-dir = tokenizer.kind=KIND, or tokenizer.path=FILE
--output --out = --out-dir DIR, or --name NAME in outputs/
-o = --out-dir DIR, or --name NAME in outputs/; weights are written to model.safetensors there
--run-name --experiment --exp-name = --name NAME
--resume --resume-from-checkpoint --continue =
    the same command continues an unfinished run; --extend N trains a finished one further
--overwrite-output-dir --overwrite --force --yes = --fresh starts a new run beside an existing one
--report-to --wandb --wandb-log --wandb-project --logger --logger-name =
    --tensorboard; metrics.jsonl in the run folder has the figures
--push-to-hub --hub-model-id = `minitf export RUN -o DIR` writes a folder for Hugging Face
--load-best-model-at-end --always-save-checkpoint = leave it out: model.safetensors is the best one
--eval-strategy --evaluation-strategy = eval.every_steps=N
--eval-iters = eval.tokens=N, of each evaluation but the last
--save-strategy --save-interval = checkpoint.every_steps=N
-e = train.epochs=N
-b = train.batch_size=N
--max-tokens = train.batch_tokens=N are the tokens of a step, train.tokens=N those of the run
--gradient-accumulation-steps --update-freq =
    train.batch_size=N is the number of rows of a step; train.micro_batch_size=N of them are computed at once
--lora --use-lora --peft --use-peft --lora-r --lora-rank = adapter.rank=8 model.init_from=RUN
--from = model.init_from=RUN
--arch = model.kind=KIND, or a recipe of `minitf recipe list`
--compile --torch-compile = runtime.compile=true
--fp32 = runtime.precision=fp32
--fp16 --half = runtime.precision=fp16
--bf16 = runtime.precision=bf16
--do-train --do-eval --do-predict --preprocessing-num-workers --num-workers --dataloader-num-workers = leave it out
--cache-dir --no-cache --overwrite-cache = MINITF_CACHE=FOLDER is where tokenized data is kept
[serve]
--share --public = --host 0.0.0.0 lets other machines in; nothing is opened to the internet
[export]
--out-dir = -o DIR
--format --type = --to FORMAT; without it the folder is for Hugging Face
--gguf = --to gguf -o DIR
--onnx = --to onnx -o DIR
--push-to-hub --hub-model-id = upload the folder of -o DIR with Hugging Face's client
[convert]
--to = `minitf export RUN --to FORMAT -o DIR` writes formats of other tools
[runs list]
--all -a --sort --filter --limit = all runs are listed; --json prints them for programs
[RUN]
-m --model --out-dir --run --ckpt = the run is the first argument: minitf {command} RUN
[RECIPE]
--list-recipes --list --recipes --presets = `minitf recipe list`
--config --recipe = a recipe is an argument: minitf {command} recipe.yaml
[TEXT]
--text = a text is an argument
[-i]
--file = -i FILE
[--data]
--file --input = --data FILE
[--step]
--checkpoint = --step N chooses a checkpoint
[--device]
--gpu --cuda = --device cuda
--cpu --no-cuda --use-cpu = --device cpu
[--nproc]
--gpus --num-gpus --n-gpu --n-gpus --devices --num-devices --world-size --nproc-per-node --num-processes =
    --nproc P
[--head]
--heads = --head 0,2
--view --mode --style = all heads are drawn; -o FILE.html is a page to look at them
[--layer]
--layers = --layer 0,2
[--output]
--html = -o FILE.html
--save --out = -o FILE
""")
"""What to type in place of an option, by command (`training` is pretrain and finetune), or by what the command has: an
argument or an option."""

VALUES = _table("""
[--split]
test = a test set is a file: --data FILE
validation valid dev eval = --split val
""")
"""What to type in place of a value, by option."""

HUGGING_FACE = ("hf", "huggingface", "transformers")
"""Words for the folder that `minitf export` writes without --to."""
WITHOUT_COMMAND = {
    "-V": "`minitf --version`",
    "--list": "`minitf recipe list`, `minitf runs list`",
    "-l": "`minitf recipe list`, `minitf runs list`",
    "-?": "`minitf --help`",
}
"""What to type in place of an option that stands before any command."""
