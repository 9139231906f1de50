"""The examples that `--help` shows, by command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "pretrain": (
        "minitf pretrain",
        "minitf pretrain my.txt train.steps=1000 -n mine",
        "minitf pretrain bert-nano my.txt --assert 'val.loss<4'",
    ),
    "finetune": ("minitf finetune sst2-nano reviews.csv", "minitf finetune sst2-nano reviews.csv model.init_from=bert"),
    "generate": (
        'minitf generate last "The file is" --temperature 0.7',
        "minitf generate last -i prompts.txt --greedy --json",
    ),
    "predict": ('minitf predict last "a warm story"', "minitf predict last -i reviews.csv > labels.jsonl"),
    "evaluate": (
        "minitf evaluate last",
        "minitf evaluate last --data my.txt --assert 'loss<5'",
        "minitf evaluate last --pairs pairs.jsonl --assert 'pairs.accuracy>0.6'",
    ),
    "convert": (
        "minitf convert last model.attention.kind=window -n windows",
        "minitf convert last --memory 3:511=0 -n silenced",
    ),
    "import": ("minitf import ./tiny-llama -n tiny", "minitf import ./tiny-llama -o outputs/tiny --json"),
    "export": ("minitf export last -o ./my-model --license mit", "minitf export last -o ./tensors --to safetensors"),
    "cost": ("minitf cost quickstart", "minitf cost gpt-nano gpt-char --lengths 128..8192 -o cost.png"),
    "doctor": ("minitf doctor", "minitf doctor --resume"),
    "inspect attention": (
        'minitf inspect-attention last "The file is closed." -o heads.png',
        'minitf inspect-attention last "The file is closed." --layer 0 --describe',
    ),
    "inspect syntax": ("minitf inspect syntax last --data world",),
    "inspect senses": ("minitf inspect senses last --data world",),
    "inspect answers": ("minitf inspect answers last --data corridor --limit 200",),
    "inspect word": (
        "minitf inspect word last file -i sentences.txt",
        "minitf inspect word last file --neighbors 10",
        "minitf inspect word last --similarity simlex999.txt",
    ),
    "inspect align": ("minitf inspect align toy", "minitf inspect align toy -o alignments.png"),
    "inspect coverage": (
        "minitf inspect coverage summaries",
        'minitf inspect coverage summaries "a long text" -o coverage.png',
    ),
    "inspect model": ("minitf inspect model last",),
    "inspect positions": ("minitf inspect positions last -o positions.png",),
    "inspect softmax": ('minitf inspect softmax last "The file is closed."',),
    "inspect tokens": ('minitf inspect tokens last "The file is closed."',),
    "inspect crash": ("minitf inspect crash last",),
    "recipe list": ("minitf recipe list",),
    "recipe show": ("minitf recipe show gpt-nano", "minitf recipe show gpt-nano --why optimizer.lr"),
    "recipe check": ("minitf recipe check quickstart model.n_heads=8",),
    "recipe keys": ("minitf recipe keys train", "minitf recipe keys model.attention"),
    "recipe schema": ("minitf recipe schema > recipe.schema.json",),
    "recipe init": ("minitf recipe init my.yaml", "minitf recipe init my.yaml --from bert-nano"),
    "data show": ("minitf data show bert-nano", "minitf data show my.txt --rows 2 --split val"),
    "data stats": ("minitf data stats my.txt",),
    "data check": ("minitf data check sst2-nano reviews.csv",),
    "tokenizer train": (
        "minitf tokenizer train my.txt tokenizer.kind=unigram tokenizer.vocab_size=1000 -o unigram.json",
    ),
    "tokenizer encode": ('minitf tokenizer encode last "The file is closed." --pieces',),
    "tokenizer decode": ("minitf tokenizer decode last 12 7 42",),
    "tokenizer stats": ('minitf tokenizer stats last "The file is closed."',),
    "runs list": ("minitf runs list",),
    "runs show": ("minitf runs show last",),
    "runs compare": (
        "minitf runs compare first second -o losses.png",
        "minitf runs compare first second --at flops --reach val.loss",
    ),
}
EXAMPLES["inspect-attention"] = EXAMPLES["inspect attention"]
