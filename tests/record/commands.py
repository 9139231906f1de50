"""The commands of a record, as data: every subcommand, on the runs of runs.py, well and wrongly given.

A line is what stands behind `minitf` in a shell. Files that it puts beside the recipes are recorded too. Commands are
compared by their names, so a name stays when an option that it tries is renamed. All take about 20 seconds of one core,
most of them for the built-in corpora.
"""

from typing import NamedTuple

from .runs import RUNS

TRAINED = "-d outputs -n"
CHAT = '{"messages": [{"role": "user", "content": "two birds"}]}'


class Command(NamedTuple):
    """lines: given one after the other. needs: runs that must be there besides those whose names stand in the lines."""

    lines: tuple[str, ...]
    stdin: str = ""
    needs: frozenset[str] = frozenset()


def command(*lines: str, stdin: str = "", needs: frozenset[str] = frozenset()) -> Command:
    return Command(lines, stdin, needs)


ALL = frozenset(RUNS)
COMMANDS = {
    # help and facts
    "help": command("--help"),
    "help generate": command("generate --help"),
    "help inspect": command("inspect --help"),
    "version": command("--version"),
    "doctor": command("doctor --json"),
    "cost": command("cost regress.yaml --json --seconds 0"),
    # recipes
    "recipe list": command("recipe list --json"),
    "recipe show": command("recipe show pairs.yaml model.n_layers=3"),
    "recipe show preset": command("recipe show transformer-base --json"),
    "recipe show why": command("recipe show classify.yaml --why model.n_layers"),
    "recipe check": command("recipe check masked.yaml", "recipe check multi30k-en-de"),
    "recipe keys": command("recipe keys", "recipe keys model.attention --json"),
    "recipe schema": command("recipe schema"),
    "recipe init": command("recipe init own.yaml --from bert-nano"),
    # texts and tokenizers
    "data show": command("data show masked.yaml --rows 2"),
    "data show pairs": command("data show pairs.yaml --split val --json"),
    "data show tags": command("data show tag.yaml"),
    "data show chats": command("data show chats.yaml --rows 2"),
    "data stats": command("data stats mixed.yaml"),
    "data stats streamed": command("data stats streamed.yaml", "data check streamed.yaml"),
    "data stats built-in": command(
        "data stats data.train=grammar data.split=0.2% tokenizer.kind=char --json",
        "data stats data.train=docs-summaries objective.kind=instruct tokenizer.kind=byte",
        "data stats data.train=python-docs tokenizer.kind=byte",
    ),
    "data stats world": command(
        "data stats 'data.train={kind: world, n_documents: 80}' tokenizer.vocab_size=700 --json",
        "data stats pairs.yaml 'data.train={kind: world-translation, n_documents: 90}'",
        "data stats pairs.yaml 'data.train={kind: world-facts, n_documents: 90, zipf: 0.5}'",
        *(
            f"data stats 'data.train={{kind: {task}, n_documents: 30, distance: 20}}'"
            for task in ("corridor", "copy", "associative-recall")
        ),
    ),
    "data stats classes": command("data stats classify.yaml --json"),
    "tokenizer train": command("tokenizer train mixed.yaml tokenizer.kind=unigram -o unigram.json"),
    "tokenizer encode": command(
        "tokenizer encode text --pieces 'The king ☃'", "tokenizer encode masked --json", stdin="The king\nwas old.\n"
    ),
    "tokenizer decode": command("tokenizer decode masked 60 61 62"),
    "tokenizer stats": command("tokenizer stats pairs 'the old king'", "tokenizer stats spans 'the ☃ film' --json"),
    # runs
    "runs list": command("runs list", "runs list outputs --json", "runs show last", needs=ALL),
    "data check": command("data check mixed.yaml", "data check classify.yaml --json"),
    "runs compare": command("runs compare text classify", needs=ALL),
    "runs compare at": command(
        "runs compare text stream --at flops", "runs compare classify/seed-1 classify/seed-2 --at steps --json"
    ),
    "runs show": command("runs show text", "runs show classify --json", "runs show chats --json"),
    "fresh": command(f"finetune regress.yaml {TRAINED} regress --fresh -q --assert 'val.loss<9'"),
    "complete": command(f"pretrain masked.yaml {TRAINED} masked --json"),
    "dry run": command("pretrain stream.yaml --dry-run", "pretrain stream.yaml --print-config"),
    "stop at": command(f"pretrain text.yaml --stop-at 1 {TRAINED} halted", "runs show halted"),
    "sweep": command(
        "sweep text.yaml optimizer.lr=[0.01,0.02] train.seed=1..2 --budget 0.001s --json -d swept",
        "sweep text.yaml optimizer.lr=[0.01,0.03] -d swept",
        "sweep text.yaml optimizer.lr=[]",
        "sweep text.yaml optimizer.rate=[1,2]",
    ),
    "stdin": command(
        "pretrain base.yaml data.train=- model.kind=decoder model.d_model=16 train.steps=2", stdin="a b\n\nc d\n" * 90
    ),
    "crash": command(
        "pretrain text.yaml model.norm_place=none model.init_std=10 model.n_layers=8 model.activation=relu2 -d burst",
        "inspect crash burst",
        "inspect crash burst --json",
    ),
    # convert
    "convert": command(
        "convert text model.attention.kind=favor -d converted --json",
        "convert pairs model.cross_attention.kind=diminishing -d diminishing --json",
    ),
    "convert memory": command(
        "convert text --memory 1:3=0 --memory 0:0-4=0.5 -d silenced --json", "convert text --memory 2:0=0"
    ),
    # Hugging Face
    "export": command(
        "export text -o tensors --to safetensors",
        "export text -o folder --to nowhere",
        "import tensors -d back",
        "import nothing -d back",
    ),
    # evaluate
    "chat": command("chat chats --greedy --max-new-tokens 4", stdin="two birds\n/quit\n"),
    "serve": command("serve text --port 99999", "serve none"),
    "film": command('inspect film text "two birds" --json'),
    "report": command("runs report text -o report.html", "runs report none -o other.html"),
    "runs rm": command("runs rm none", "runs rm"),
    "evaluate": command("evaluate text", "evaluate text --split train"),
    "evaluate file": command("evaluate text --data other.txt --step last --json"),
    "evaluate average": command("evaluate text --average 2", "evaluate text --step 40"),
    "evaluate masked": command("evaluate masked --json"),
    "evaluate replaced": command("evaluate replaced", "evaluate replaced --step 10 --json"),
    "evaluate minimal pairs": command(
        "evaluate stream --pairs minimal.jsonl --json",
        "evaluate masked --pairs minimal.jsonl",
        "evaluate spans --pairs minimal.jsonl --score token",
    ),
    "evaluate babylm": command(
        "evaluate stream --babylm babylm --json",
        "evaluate masked --babylm babylm -o predictions.json",
        "evaluate spans --babylm .",
    ),
    "evaluate pairs": command("evaluate pairs --json", "evaluate killed"),
    "evaluate classes": command(
        "evaluate classify", "evaluate classify --confusion confusion.json --calibration calibration.png"
    ),
    "evaluate numbers": command("evaluate regress"),
    "evaluate tags": command("evaluate tag --json --confusion tags.json"),
    "evaluate chats": command("evaluate instruct", "evaluate chats --json"),
    # generate and predict
    "greedy": command("generate text 'The king' 'Once' --greedy --max-new-tokens 20"),
    "sampled": command(
        "generate text 'The king' --seed 5 --num-samples 3 --top-p 0.9 --min-p 0.01 --repetition-penalty 1.2"
    ),
    "stopped": command("generate text Once --stop e --logprobs 3 --json"),
    "from lines": command(
        "generate stream --temperature 0.7 --top-k 5 --max-new-tokens 8", stdin="The king\nOnce\\nupon\n\nA\n"
    ),
    "mixed mixers": command("generate mixed 'the old king' --average 2 --batch-size 1"),
    "filled": command("generate masked 'The [MASK] was [MASK].' --top-k 3", "generate spans 'a [MASK] soup' --json"),
    "filled by a generator": command(
        "generate replaced 'The [MASK] was old.' --top-k 3", "generate replaced --json", stdin="a [MASK]\n"
    ),
    "infilled": command(
        "generate noisy 'The [MASK] was [MASK].' --json", "generate gaps 'The [MASK] was [MASK].' --n-best 2"
    ),
    "beams": command("generate pairs 'the wise king' 'a sailor' --n-best 3 --length-penalty 1 --min-new-tokens 3"),
    "beams of lines": command(
        "generate killed --json", "generate killed --num-beams 1 --max-new-tokens 5", stdin="red dog\nsun\n"
    ),
    "answers": command("generate instruct 'the old king' --greedy", f"generate chats '{CHAT}' --max-new-tokens 9"),
    "predict classes": command(
        "predict classify",
        "predict classify/seed-1 'a nice film' --step 10 --batch-size 1",
        stdin="a nice soup\na dull film\n",
    ),
    "predict decided": command(
        "predict classify 'a nice film' 'a dull soup' --top 2 --threshold 0.6 --threshold bad=0.2",
        "predict tag 'Anna saw the soup in Oslo .' --top 2 --threshold O=0.9",
    ),
    "predict labels": command(
        "predict labels 'a nice soup' --top 1 --threshold 0.2", "predict labels -i opinions.jsonl"
    ),
    "predict table": command("predict classify -i opinions.jsonl --assert 'accuracy>0.1'"),
    "predict numbers": command("predict regress --json", stdin='{"text": "the king", "text_pair": "a house"}\n'),
    "predict tags": command("predict tag 'Anna saw the soup in Oslo .'", "predict tag -i names.conll"),
    # inspect
    "inspect attention": command(
        "inspect attention text 'The old king'", "inspect-attention stream 'The old king' --describe"
    ),
    "inspect attention json": command(
        "inspect attention mixed 'the king' --json --full", "inspect attention masked 'The king' --words --json"
    ),
    "inspect attention pairs": command(
        "inspect attention pairs 'the king' --target 'jo' -o pairs.json -o pairs.png -o pairs.safetensors"
    ),
    "inspect attention query": command(
        "inspect attention text 'The old king' --query 4 --layer 1", "inspect attention text King --step all"
    ),
    "inspect word": command("inspect word masked king 'The king was old.' 'The old king slept.' 'A king' --json"),
    "inspect word vectors": command(
        "inspect word vectors king --neighbors 3", "inspect word vectors --analogy 'king old man' --json"
    ),
    "inspect syntax": command("inspect syntax masked --data '{kind: world, n_sentences: 1}' --json"),
    "inspect senses": command("inspect senses masked --data '{kind: world, n_sentences: 1}' --limit 300"),
    "inspect answers": command(
        "inspect answers stream --data '{kind: associative-recall, distance: 12, n_pairs: 3, n_symbols: 3}' --limit 20",
        "inspect answers text --data '{kind: world, n_sentences: 1}' --limit 20 --json",
        "inspect answers masked --data tiny.txt",
    ),
    "inspect memory": command(
        "inspect memory text --corpus other.txt --limit 40 --text 'The old king'",
        "inspect memory stream --corpus other.txt --limit 9 --layer -1 --top 2 --json",
        "inspect memory masked --corpus other.txt --memory 0:1 --limit 9",
        "inspect memory pairs --stack encoder --limit 9 --json",
        "inspect memory mixed --text The",
        "inspect memory recurrent",
    ),
    "inspect model": command("inspect model pairs", "inspect model chats --json"),
    "inspect tokens": command("inspect tokens masked 'The old king'"),
    "inspect positions": command(
        "inspect positions text", "inspect positions spans --json", "inspect positions pairs --stack encoder"
    ),
    "inspect softmax": command("inspect softmax text 'The old king' --json", "inspect softmax killed 'red dog'"),
    "embed": command(
        "embed masked 'The king' 'The old king' 'a house' --neighbors 1",
        "embed classify -i tiny.txt -o vectors.npy",
        "embed similar 'The king' 'The old king' --json",
        "embed text 'The king' --neighbors 2 --among tiny.txt --json",
        "embed pairs a",
    ),
    "inspect surprisal": command(
        "inspect surprisal text tiny.txt -o surprisal.csv",
        "inspect surprisal masked --words --bits",
        "inspect surprisal classify tiny.txt",
        stdin="The old king\n",
    ),
    "inspect replaced": command(
        "inspect replaced replaced 'The old king was here' --seed 2",
        "inspect replaced replaced 'The king' --json",
        "inspect replaced text a",
    ),
    "inspect gates": command(
        "inspect gates recurrent 'The old king'", "inspect gates recurrent 'a' 'The' --json", "inspect gates text a"
    ),
    "inspect spans": command(
        "inspect spans recurrent 'The old king'", "inspect spans recurrent 'a' --json", "inspect spans text a"
    ),
    "inspect latents": command(
        "inspect latents latents 'The old king'", "inspect latents latents 'a' --json", "inspect latents text a"
    ),
    "inspect simple": command("inspect simple", "inspect simple 'an old king' --json"),
    "inspect align": command(
        "inspect align pairs --limit 12",
        "inspect align killed 'red dog' --target 'dog red' -o links.pharaoh -o links.svg",
    ),
    "inspect coverage": command(
        "inspect coverage covered --limit 4",
        "inspect coverage covered --limit 4 --json",
        "inspect coverage pairs 'the wise king' --target 'jo' --head 0 -o coverage.json -o coverage.svg",
        "inspect coverage text a",
    ),
    # faults
    "no such word": command("pretrain --no-such-option", "rnus", "runs show nowhere --json"),
    "no such recipe": command("pretrain trext.yaml", "recipe show gtp-nano"),
    "faults of a recipe": command(
        "recipe check text.yaml optimizer.learning_rate=1 model.n_heads=3 train.steps=fast", "finetune"
    ),
    "no such data": command("pretrain text.yaml data.train=./none.txt", "evaluate classify --data other.txt"),
    "wrong column": command(
        "data stats regress.yaml data.fields='{text: 0, label: 7}'", "evaluate classify --data names.conll"
    ),
    "another recipe": command(f"pretrain text.yaml train.seed=9 {TRAINED} text"),
    "no such run": command(
        "generate txet Once", "evaluate text --step 11", "finetune tag.yaml model.init_from=outputs/none"
    ),
    "not its task": command(
        "predict text Once", "generate classify Once", "inspect align text Once", "evaluate text --confusion c.png"
    ),
    "no such device": command("evaluate text --device cuda:77"),
    "missed": command("evaluate text --assert 'loss<0.1' --json", "evaluate text --assert 'lss<1'"),
    "bad lines": command(
        "predict regress",
        "predict classify -i masked.yaml",
        "generate chats",
        "tokenizer decode text 9999",
        stdin='{"messages": [{"role": "king"}]}\n',
    ),
    "no overwriting": command(
        *["tokenizer train text.yaml -o text.json"] * 2,
        "recipe init base.yaml",
        "inspect softmax text King -o tiny.txt",
    ),
}
