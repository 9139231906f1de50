"""One decoder for both: `hybrid` beside `next_token` and `masked` at equal FLOPs, on a text and on minimal pairs.

    python -m tests.benchmarks.both_ways FOLDER --data TEXT --pairs FILE.jsonl ... [--seeds N] [--steps N] [--limit N]

All sides have the same layers and tokenizer; `masked` is the encoder of this size. Their steps are such that each side
trains with the FLOPs of `--steps` steps of next_token. Losses are in nats per token: of the next token, and of masked
tokens (15 %). Pairs are scored as each side can: causally, and by pseudo-log-likelihood with the later tokens of a word
masked; of each file the first `--limit` pairs. Each figure is written to FOLDER/both_ways.json as soon as it is known,
and the same command continues. The table has means over the seeds with the 95 % interval of Student's t.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from mini_tf.run import manifest
from tests.benchmarks.pretraining import flops_of, minitf, shown

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
    given.folder.mkdir(parents=True, exist_ok=True)
    record = given.folder / "both_ways.json"
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    pairs = [shortened(path, given.folder, given.limit) for path in given.pairs]
    for side in SIDES:
        if (key := f"FLOPs of a step, {side}") not in found:
            found[key] = flops_per_step(given.folder, given.data, side)
            record.write_text(json.dumps(found, indent=1))
    for seed in range(given.seeds):
        for side in SIDES:
            if (key := f"{side}, seed {seed}") not in found:
                ratio = found["FLOPs of a step, next_token"] / found[f"FLOPs of a step, {side}"]
                found[key] = measure(given.folder, given.data, pairs, side, seed, round(given.steps * ratio))
                record.write_text(json.dumps(found, indent=1))
                print(key, found[key], file=sys.stderr, flush=True)
    for side in SIDES:
        of_side = [found[f"{side}, seed {seed}"] for seed in range(given.seeds)]
        figures = (f"{name} {shown([one[name] for one in of_side])}" for name in of_side[0] if name != "flops")
        print(f"{side:<12} {of_side[0]['flops']:.3g} FLOPs  {'  '.join(figures)}")


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
        accuracy = minitf("evaluate", str(run), *files, "--score", score)["pairs.accuracy"]
        figures[f"pairs, {score}"] = accuracy
    return figures


def flops_per_step(folder: Path, text: str, side: str) -> float:
    run = folder / f"{named(side)}-1"
    minitf(*pretrain(text, side), "train.steps=1", "-d", str(run))
    flops = manifest.read(run).flops_per_step
    assert flops is not None
    return float(flops)


def pretrain(text: str, side: str) -> tuple[str, ...]:
    return ("pretrain", "quickstart", *SIDES[side], f"data.train={text}", *COMMON)


def named(side: str) -> str:
    return side.replace(" ", "-").replace("/", "-")


if __name__ == "__main__":
    main()
