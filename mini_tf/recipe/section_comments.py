"""A recipe to begin with: a preset in which every section says what it is for and which keys people change first."""

import re

from mini_tf.recipe.kinds import listing

ABOUT = {
    "data": ("what is learnt from: a file (txt jsonl csv tsv parquet), a glob, a list of them, or python-docs", "train: my.txt, split: 5%"),
    "tokenizer": ("what a token is: bpe, byte or char, trained here; or path: a tokenizer.json or a run", "kind: bpe, vocab_size: 4096"),
    "model": ("what is trained: a decoder reads leftwards, an encoder both sides", "kind: decoder, d_model: 128, n_layers: 4, n_heads: 4"),
    "objective": ("what is asked: next_token, masked, seq2seq; classify, tag, regress, instruct; left out, it fits the model", ""),
    "adapter": ("what learns in place of the matrices of a run that model.init_from begins with: lora", ""),
    "optimizer": (f"how the weights move: {', '.join(listing('optimizers'))}", "lr: 1e-3, weight_decay: 0.1"),
    "schedule": (f"the learning rate over the run: {', '.join(listing('schedules'))}", "kind: cosine, warmup: 2%"),
    "train": ("how long (one of steps tokens epochs time) and how much at once", "steps: 2000, batch_size: 32, context: 128"),
    "eval": ("how often it is measured on held-out text; patience stops early", "every_steps: 200, patience: 5"),
    "checkpoint": ("how often it is saved, and what is kept", "every_steps: 200, keep_last: 2"),
    "log": ("how often it reports, and texts it writes at each evaluation", "every_steps: 10, samples: 1"),
    "runtime": ("the machine: auto finds out", "device: auto, precision: auto, threads: auto"),
    "generate": ("how samples are written", "max_new_tokens: 200, temperature: 0.8, top_k: 50"),
    "expect": ("figures that --expect holds a shipped recipe to", ""),
}
"""By section: what it is for, and its likeliest keys."""


def commented(text: str) -> str:
    """A recipe's text with a comment above each section; the sections it leaves out follow, commented out."""
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
    return "\n".join([own, "", "# What is left out has its default; `minitf recipe keys` lists every key.", *others]) + "\n"
