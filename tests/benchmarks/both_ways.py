"""One decoder for both: `hybrid` beside `next_token` and `masked` at equal FLOPs, on a text and on minimal pairs.

    python -m tests.benchmarks.both_ways FOLDER --data TEXT --pairs FILE.jsonl ... [--seeds N] [--steps N] [--limit N]

All sides have the same layers and tokenizer; `masked` is the encoder of this size. Their steps are such that each side
trains with the FLOPs of `--steps` steps of next_token. Losses are in nats per token: of the next token, and of masked
tokens (15 %). Pairs are scored as each side can: causally, and by pseudo-log-likelihood with the later tokens of a word
masked; of each file the first `--limit` pairs. The figures are in FOLDER/both_ways.json (`experiments.py`).
"""

import argparse
from itertools import islice
from pathlib import Path

from .experiments import Figures, flops_of, minitf, shown

MODEL = "d_model: 128, n_layers: 4, n_heads: 4, norm: rms, activation: swiglu, d_ff: 352"
COMMON = (
    "tokenizer={kind: bpe, vocab_size: 2048}", "optimizer={kind: adamw, lr: 2e-3, weight_decay: 0.1}",
    "schedule={kind: cosine, warmup: 5%}", "train.batch_size=16",
    "train.context=64", "eval.every_steps=null", "eval.baseline=false", "log.samples=0", "runtime.compile=false",
    "data.pack=docs",
)  # fmt: skip
SIDES = {
    "next_token": (f"model={{kind: decoder, {MODEL}}}", "objective.kind=next_token"),
    "masked": (f"model={{kind: encoder, {MODEL}}}", "objective={kind: masked, mask_rate: 0.3, final_mask_rate: 0.15}"),
    "hybrid": (f"model={{kind: decoder, {MODEL}}}", "objective={kind: hybrid, causal_rate: 0.5}"),
    "hybrid 1/8": (f"model={{kind: decoder, {MODEL}}}", "objective={kind: hybrid, causal_rate: 0.125}"),
}
LOSSES = {"next_token": {"loss": "next token"}, "masked": {"loss": "masked"}}
BOTH = {"loss.next_token": "next token", "loss.masked": "masked"}
SCORES = {"next_token": ("causal",), "masked": ("word",)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.both_ways", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--data", required=True, help="a text")
    parser.add_argument("--pairs", type=Path, nargs="+", required=True, help="jsonl files of minimal pairs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="of next_token; the others have as many FLOPs")
    parser.add_argument("--limit", type=int, default=200, help="pairs of a file")
    given = parser.parse_args()
    figures = Figures(given.folder / "both_ways.json")
    pairs = [shortened(path, given.folder, given.limit) for path in given.pairs]
    for side in SIDES:
        figures.once(f"FLOPs of a step, {side}", flops_per_step, given.folder, given.data, side)
    for seed in range(given.seeds):
        for side in SIDES:
            ratio = figures["FLOPs of a step, next_token"] / figures[f"FLOPs of a step, {side}"]
            steps = round(given.steps * ratio)
            figures.once(f"{side}, seed {seed}", measure, given.folder, given.data, pairs, side, seed, steps)
    for side in SIDES:
        of_seeds = [figures[f"{side}, seed {seed}"] for seed in range(given.seeds)]
        means = (f"{name} {shown([metrics[name] for metrics in of_seeds])}" for name in of_seeds[0] if name != "flops")
        print(f"{side:<12} {of_seeds[0]['flops']:.3g} FLOPs  {'  '.join(means)}")


def shortened(path: Path, folder: Path, limit: int) -> Path:
    """The first `limit` pairs of a file, in the folder."""
    short = folder / f"{limit}-{path.name}"
    with path.open(encoding="utf-8") as lines:
        short.write_text("".join(islice(lines, limit)), encoding="utf-8")
    return short


def measure(folder: Path, text: str, pairs: list[Path], side: str, seed: int, steps: int) -> dict[str, float]:
    """The losses of a side, and the share of the pairs that it decides rightly, by score."""
    run = folder / f"{named(side)}-{steps}-{seed}"
    minitf(*pretrain(text, side), f"train.seed={seed}", f"train.steps={steps}", "-d", str(run))
    metrics = minitf("evaluate", str(run))
    figures = {name: metrics[metric] for metric, name in LOSSES.get(side, BOTH).items()} | {"flops": flops_of(run)}
    files = [word for path in pairs for word in ("--pairs", str(path))]
    for score in SCORES.get(side, ("causal", "word")):
        figures[f"pairs, {score}"] = minitf("evaluate", str(run), *files, "--score", score)["pairs.accuracy"]
    return figures


def flops_per_step(folder: Path, text: str, side: str) -> float:
    run = folder / f"{named(side)}-1"
    minitf(*pretrain(text, side), "train.steps=1", "-d", str(run))
    return flops_of(run)


def pretrain(text: str, side: str) -> tuple[str, ...]:
    return ("pretrain", "quickstart", *SIDES[side], f"data.train={text}", *COMMON)


def named(side: str) -> str:
    return side.replace(" ", "-").replace("/", "-")


if __name__ == "__main__":
    main()
