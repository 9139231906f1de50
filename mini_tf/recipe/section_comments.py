"""The recipe that `minitf recipe init` writes: a preset with a comment on every section."""

import re

from mini_tf.recipe.kinds import listing

ABOUT = {
    "data": ("training data: a file (txt jsonl csv tsv parquet), a glob, a list of them, or python-docs", "train: my.txt, split: 5%"),
    "tokenizer": (
        "bpe, byte, char, unigram or wordpiece; or path: a tokenizer.json or a run",
        "kind: bpe, vocab_size: 4096",
    ),
    "model": ("decoder (causal), encoder (bidirectional) or encoder_decoder", "kind: decoder, d_model: 128, n_layers: 4, n_heads: 4"),
    "objective": ("next_token, prefix, masked, denoising, seq2seq, classify, tag, regress or instruct; default: the model's own", ""),
    "adapter": ("lora: train an adapter of the run in model.init_from instead of its own matrices", ""),
    "optimizer": (", ".join(listing("optimizers")), "lr: 1e-3, weight_decay: 0.1"),
    "schedule": (f"learning rate schedule: {', '.join(listing('schedules'))}", "kind: cosine, warmup: 2%"),
    "train": ("length of the run (one of steps tokens epochs time), batch size and context", "steps: 2000, batch_size: 32, context: 128"),
    "eval": ("evaluation on validation data; patience: early stopping", "every_steps: 200, patience: 5"),
    "checkpoint": ("steps between checkpoints, and which are kept", "every_steps: 200, keep_last: 2"),
    "log": ("steps between progress lines, and samples at each evaluation", "every_steps: 10, samples: 1"),
    "runtime": ("device, precision and threads; auto: chosen for this machine", "device: auto, precision: auto, threads: auto"),
    "generate": ("decoding options of samples", "max_new_tokens: 200, temperature: 0.8, top_k: 50"),
    "expect": ("bounds on metrics that --expect checks", ""),
}
"""By section: its meaning and its most used keys."""


def add_section_comments(text: str) -> str:
    """A recipe's text with a comment above each section; omitted sections are appended, commented out."""
    found: set[str] = set()

    def explain(section: re.Match[str]) -> str:
        name = section[1]
        if name not in ABOUT:
            return section[0]
        found.add(name)
        about, keys = ABOUT[name]
        first = ", ".join(re.findall(r"(\w+):", keys))
        return f"# {name}: {about}{f' ({first}, ...)' if keys else ''}\n{section[0]}"

    own = re.sub(r"^([a-z]+):", explain, text.rstrip(), flags=re.MULTILINE)
    others = [f"# {name}: {about}\n# {name}: {{{keys}}}" for name, (about, keys) in ABOUT.items() if name not in found and keys]
    return "\n".join([own, "", "# Omitted keys have their defaults; `minitf recipe keys` lists every key.", *others]) + "\n"
