"""The examples that `--help` shows, by command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "pretrain": (
        "minitf pretrain",
        "minitf pretrain my.txt train.steps=1000 -n mine",
        "minitf pretrain bert-nano my.txt --assert 'val.loss<4'",
    ),
    "finetune": ("minitf finetune sst2-nano reviews.csv", "minitf finetune sst2-nano reviews.csv model.init_from=bert"),
    "sweep": (
        "minitf sweep my.txt 'optimizer.lr=[0.003,0.01,0.03]' train.seed=1..3 --budget 30m",
        "minitf sweep gpt-nano optimizer.lr=1e-4..1e-1 model.dropout_rate=0.0..0.3 --samples 27 --halving",
    ),
    "generate": (
        'minitf generate last "The file is" --temperature 0.7',
        "minitf generate last -i prompts.txt --greedy --json",
    ),
    "chat": ("minitf chat last", "minitf chat last --temperature 0.7 --max-new-tokens 60"),
    "predict": ('minitf predict last "a warm story"', "minitf predict last -i reviews.csv > labels.jsonl"),
    "embed": (
        "minitf embed last -i texts.txt -o vectors.npy",
        'minitf embed last "a warm story" --neighbors 5 --among texts.txt',
    ),
    "evaluate": (
        "minitf evaluate last",
        "minitf evaluate last --data my.txt --assert 'loss<5'",
        "minitf evaluate last --pairs pairs.jsonl --assert 'pairs.accuracy>0.6'",
        "minitf evaluate last --babylm evaluation_data/full_eval -o predictions.json --assert 'babylm.blimp>0.6'",
    ),
    "serve": ("minitf serve last", "minitf serve last --port 0 --queue 16"),
    "convert": (
        "minitf convert last model.attention.kind=window -n windows",
        "minitf convert last --memory 3:511=0 -n silenced",
    ),
    "import": ("minitf import ./tiny-llama -n tiny", "minitf import ./tiny-llama -o outputs/tiny --json"),
    "export": ("minitf export last -o ./my-model --license mit", "minitf export last -o ./tensors --to safetensors"),
    "cost": ("minitf cost quickstart", "minitf cost gpt-nano gpt-char --lengths 128..8192 -o cost.png"),
    "doctor": ("minitf doctor", "minitf doctor --resume"),
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
    "runs rm": ("minitf runs rm first second", "minitf runs rm last --yes"),
    "runs report": (
        "minitf runs report last -o report.html",
        'minitf runs report first second --text "The file is" -o report.html',
    ),
    "runs compare": (
        "minitf runs compare first second -o losses.png",
        "minitf runs compare first second --at flops --reach val.loss",
    ),
}
