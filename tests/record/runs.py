"""The runs of a record, as data: the recipe of each, and the command lines that train it; a second or two each.

Together they have every objective and dataset type, both optimizers, every position, mixer, schedule, packing and
tokenizer. Later ones begin with earlier ones. What decides the last bits is pinned in `base.yaml`, so that nothing is
measured.
"""

import json
import random
import re
import shutil
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import tiny_tasks
from commands import DATA

BASE = """
runtime: {device: cpu, precision: fp32, compile: false, threads: 1}
eval: {every_steps: 10, tokens: 400, translations: 4}
checkpoint: {every_steps: 10, keep_last: 2}
log: {every_steps: 5}
train: {steps: 20, batch_size: 8, micro_batch_size: 4, context: 32}
generate: {max_new_tokens: 12}
"""


class Run(NamedTuple):
    """recipe: without what BASE says. lines: what `minitf` is given, one after the other, before the folder.

    killed_at: a process of its own trains first, until it has the checkpoint of this step, and is killed by kill -9.
    """

    recipe: str
    lines: tuple[str, ...]
    killed_at: int = 0


RUNS = {
    "text": Run(
        """
        data: {train: tiny.txt, split: tail 10%}
        tokenizer: {kind: byte}
        model: {kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, dropout_rate: 0.1, positions: learned,
          bias: true, tied: false}
        objective: {kind: next_token}
        optimizer: {kind: adamw, lr: 1e-2, embedding_lr: 2e-2, betas: [0.9, 0.98], weight_decay: 0.05}
        schedule: {kind: cosine, warmup: 3, floor: 10%}
        train: {steps: 40}
        checkpoint: {keep_last: 3}
        generate: {prompt: The, temperature: 0.9, top_k: 20}
        """,
        ("pretrain text.yaml", "pretrain text.yaml --extend 10"),
    ),
    "hybrid": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model: {kind: decoder, d_model: 24, n_layers: 2, n_heads: 2, positions: rotary}
        objective: {kind: hybrid}
        optimizer: {lr: 5e-3}
        """,
        ("pretrain hybrid.yaml",),
    ),
    "streamed": Run(
        """
        data: {train: [tiny.txt, other.txt], streaming: true, split: 10%, pack: docs}
        tokenizer: {kind: bpe, vocab_size: 300}
        model: {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}
        objective: {kind: masked, scheme: whole_word}
        """,
        ("pretrain streamed.yaml",),
    ),
    "stream": Run(
        """
        data: {train: tiny.txt, val: other.txt}
        tokenizer: {kind: char}
        model:
          {kind: decoder, d_model: 32, n_layers: 2, n_heads: 4, n_kv_heads: 2, d_k: 6, norm: rms, activation: swiglu,
            ngrams: [256, 128],
           attention: {kind: window, window: 12, qk_norm: true}, positions: {kind: rotary, base: 100}}
        optimizer: {kind: muon, lr: 0.02, head_lr: 0.01, embedding_lr: 0.05}
        schedule: {kind: linear, warmup: 5%}
        train: {stream: true, batch_size: 4, micro_batch_size: 4}
        """,
        ("pretrain stream.yaml",),
    ),
    "mixed": Run(
        """
        data: {train: [tiny.txt, opinions.jsonl], pack: none, split: 10%}
        tokenizer: {kind: bpe, vocab_size: 320}
        model:
          {kind: decoder, d_model: 24, n_layers: 3, n_heads: 2, positions: fourier, norm_place: post,
            activation: relu2, embed_scale: true,
           attention: [{kind: softmax, scale: 0.3}, {kind: window, window: 8}, {kind: simple, scale: rsqrt_d}]}
        optimizer: {lr: 5e-3, clip: 0.5}
        schedule: {kind: inverse_sqrt, warmup: 4}
        train: {tokens: 4k, seed: 3}
        log: {samples: 0}
        """,
        ("pretrain mixed.yaml",),
    ),
    "linear": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, d_v: 12, positions: rotary,
           attention: [{kind: linear}, {kind: favor, features: 24, redraw_every: 7}]}
        optimizer: {lr: 5e-3}
        """,
        ("pretrain linear.yaml",),
    ),
    "recurrent": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: decoder, d_model: 32, n_layers: 3, n_heads: 2, positions: none, d_ff: 0, init_std: 0.1,
           attention: [{kind: sru, state_gates: false}, {kind: srupp, memory_length: 20}, {kind: expire_span,
             max_span: 20}]}
        optimizer: {lr: 5e-3}
        train: {stream: true}
        """,
        ("pretrain recurrent.yaml", "pretrain recurrent.yaml --extend 3"),
    ),
    "memory": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, positions: transformer_xl,
           attention: {kind: softmax, memory_length: 40, memory_cache: inputs}}
        optimizer: {lr: 5e-3}
        train: {stream: true}
        """,
        ("pretrain memory.yaml",),
    ),
    "all-attention": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: decoder, d_model: 32, n_layers: 2, n_heads: 4, n_kv_heads: 2, d_ff: 0,
           attention: {kind: softmax, n_persistent: 24, memory_length: 20}}
        optimizer: {kind: muon, lr: 0.02}
        train: {stream: true}
        """,
        ("pretrain all-attention.yaml",),
    ),
    "masked": Run(
        """
        data: {train: tiny.txt, pack: docs, split: 10%}
        tokenizer: {kind: bpe, vocab_size: 320}
        model:
          {kind: encoder, d_model: 32, n_layers: 2, n_heads: 2, dropout_rate: 0.1, norm: rms, norm_weight: false,
            init: zero, head: bert,
           positions: {kind: rotary, base: 100}, attention: {kind: softmax, qk_norm: true, scale: 0.3,
             dropout_rate: 0.1}}
        objective: {kind: masked, scheme: whole_word, mask_rate: 0.2}
        optimizer: {kind: muon, lr: 0.02, momentum: 0.9, orthogonal_steps: 4, weight_decay: 0, clip: 0}
        schedule: {kind: wsd, warmup: 0, decay: 0.5}
        """,
        ("pretrain masked.yaml",),
    ),
    "replaced": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: encoder, d_model: 32, d_embedding: 24, n_layers: 2, n_heads: 2, dropout_rate: 0.1, norm_place: post,
            embed_norm: true,
           positions: learned, bias: true}
        objective: {kind: replaced_token, generator_width: 0.5, weight: 10}
        optimizer: {lr: 5e-3}
        """,
        ("pretrain replaced.yaml",),
    ),
    "spans": Run(
        """
        data: {train: [opinions.jsonl, sentences.txt], split: 10%}
        tokenizer: {kind: wordpiece, vocab_size: 130}
        model: {kind: encoder, d_model: 24, n_layers: 2, n_heads: 2, positions: t5, embed_norm: true,
          attention: {kind: window, window: 6}}
        objective: {kind: masked, scheme: span, replace: [0.6, 0.2, 0.2]}
        optimizer: {lr: 0.03}
        schedule: {kind: constant}
        train: {steps: 60}
        eval: {every_steps: 5, patience: 2}
        """,
        ("pretrain spans.yaml",),
    ),
    "latents": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: byte}
        model:
          {kind: perceiver, d_model: 24, d_latent: 32, n_latents: 5, n_layers: 1, n_blocks: 2, n_heads: 2, d_v: 10,
            dropout_rate: 0.1,
           positions: {kind: fourier, combine: concat}, decoder: {n_heads: 3, d_k: 6}}
        objective: {kind: masked, scheme: whole_word}
        optimizer: {kind: muon, lr: 0.02}
        """,
        ("pretrain latents.yaml",),
    ),
    "vectors": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: bpe, vocab_size: 320}
        model:
          {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 0, norm_place: none, residual: false, tied: false,
           positions: {kind: dynamic_window, window: 3},
           attention: {kind: window, window: 3, attends_self: false, projections: false, scale: 0}}
        objective: {kind: cbow, negatives: 3}
        optimizer: {lr: 0.02}
        """,
        ("pretrain vectors.yaml",),
    ),
    "pairs": Run(
        """
        data: {train: translate-toy, split: 0.3%}
        tokenizer: {kind: unigram, vocab_size: 400, source: {kind: char}}
        model:
          {kind: encoder_decoder, d_model: 32, n_layers: 1, n_heads: 2, encoder: {d_model: 24, n_layers: 2,
            positions: alibi},
           positions: sinusoidal, dropout_rate: 0.1}
        objective: {label_smoothing: 0.1}
        optimizer: {kind: muon, lr: 0.02}
        train: {steps: 30, batch_tokens: 600, context: 64}
        generate: {num_beams: 3, no_repeat_ngram: 2}
        """,
        ("pretrain pairs.yaml",),
    ),
    "covered": Run(
        """
        data: {train: {kind: world-facts, n_documents: 80, n_facts: 3, n_distractors: 1}, split: 10%}
        tokenizer: {kind: wordpiece, vocab_size: 500}
        model:
          {kind: encoder_decoder, d_model: 24, n_layers: 2, n_heads: 2, positions: sinusoidal,
           cross_attention: {kind: diminishing, function: power, power: 0.4, renormalize: true}}
        optimizer: {lr: 1e-2}
        train: {context: 80}
        generate: {num_beams: 3}
        """,
        ("pretrain covered.yaml",),
    ),
    "copied": Run(
        """
        data: {train: {kind: world-facts, n_documents: 80, n_facts: 3, n_distractors: 1}, split: 10%}
        model: {kind: encoder_decoder, init_from: outputs/covered, copy_attention: true}
        objective: {label_smoothing: 0.1}
        optimizer: {lr: 1e-2}
        train: {context: 80}
        generate: {num_beams: 3}
        """,
        ("finetune copied.yaml",),
    ),
    "noisy": Run(
        """
        data: {train: tiny.txt, split: 10%, pack: docs}
        tokenizer: {kind: byte}
        model:
          {kind: encoder_decoder, d_model: 24, n_layers: 1, n_heads: 2, bias: true, norm_place: post,
            embed_norm: true, positions: learned}
        objective: {kind: denoising, noise: [permute_sentences, {kind: rotate, rate: 0.5}, delete, {kind: mask,
          rate: 0.05}, infill]}
        """,
        ("pretrain noisy.yaml",),
    ),
    "gaps": Run(
        """
        data: {train: tiny.txt, split: 10%}
        tokenizer: {kind: bpe, vocab_size: 300}
        model: {kind: encoder_decoder, d_model: 24, n_layers: 1, n_heads: 2, norm: rms, positions: t5}
        objective: {kind: denoising, target: spans, noise: spans, sentinels: 12}
        """,
        ("pretrain gaps.yaml",),
    ),
    "prefixed": Run(
        """
        data: {train: tiny.txt, split: 10%, pack: none}
        tokenizer: {kind: byte}
        model: {kind: decoder, d_model: 24, n_layers: 1, n_heads: 2}
        objective: {kind: prefix, prefix_rate: [10%, 60%]}
        """,
        ("pretrain prefixed.yaml",),
    ),
    "killed": Run(
        """
        data: {train: reversed.tsv, fields: {source: source, target: target}, split: 5%}
        tokenizer: {kind: bpe, vocab_size: 300}
        model: {kind: encoder_decoder, d_model: 32, n_layers: 2, n_heads: 2, dropout_rate: 0.1, positions: none}
        objective: {kind: seq2seq}
        optimizer: {kind: adamw, lr: 1e-2}
        train: {steps: 60, context: 16}
        """,
        ("pretrain killed.yaml",),
        killed_at=20,
    ),
    "classify": Run(
        """
        data: {train: opinions.jsonl, split: 20%}
        model: {init_from: outputs/masked}
        objective: {kind: classify, pool: first, class_weights: balanced, label_smoothing: 0.1, token_dropout_rate: 0.2}
        optimizer: {lr: 1e-2, layer_decay: 0.8}
        train: {seeds: 2}
        """,
        ("finetune classify.yaml",),
    ),
    "wide": Run(
        """
        data: {train: opinions.jsonl, split: 20%}
        tokenizer: {kind: wordpiece, vocab_size: 300, lowercase: true}
        model: {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, subwords: 512, dropout_rate: 0.2}
        objective:
          {kind: classify, pool: attention, token_dropout_rate: 0.2,
           wide: {characters: [2, 4], rows: 1024, scale: 1, log_counts: true, class_ratios: true, own_loss: true,
             network_scale: 0.5}}
        optimizer: {lr: 1e-2, features_lr: 0.2, features_eps: 1e-3}
        eval: {every_steps: null}
        """,
        ("finetune wide.yaml",),
    ),
    "regress": Run(
        """
        data: {train: ratings.csv, header: false, fields: {text: 0, text_pair: 1, label: 2}, split: 20%}
        tokenizer: {kind: bpe, vocab_size: 280}
        model:
          {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, n_types: 2, norm_place: none,
           positions: {kind: fourier, n_bands: 4, combine: concat}}
        objective: {kind: regress, pool: max, dropout_rate: 0.2}
        train: {epochs: 1.5, freeze: [embedding.tokens.*]}
        """,
        ("finetune regress.yaml",),
    ),
    "similar": Run(
        """
        data: {train: similar.csv, val: scored.csv}
        tokenizer: {kind: bpe, vocab_size: 280}
        model: {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, dropout_rate: 0.1}
        objective: {kind: contrastive, pool: first, group: 6}
        optimizer: {lr: 1e-2}
        train: {batch_size: 2, micro_batch_size: 1, context: 160}
        """,
        ("finetune similar.yaml",),
    ),
    "labels": Run(
        """
        data: {train: opinions.jsonl, fields: {text: text, labels: label}, split: 40%}
        tokenizer: {kind: byte}
        model: {kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}
        objective: {kind: multi_label, pool: max}
        train: {steps: 30, context: 48}
        """,
        ("finetune labels.yaml",),
    ),
    "tag": Run(
        """
        data: {train: names.conll, split: 20%}
        model: {init_from: outputs/spans, dropout_rate: 0.2}
        objective: {kind: tag}
        optimizer: {lr: 2e-2}
        train: {steps: 40, batch_tokens: 128, freeze: [embedding.*]}
        """,
        ("finetune tag.yaml",),
    ),
    "instruct": Run(
        """
        data: {train: questions.jsonl, split: 20%}
        model: {init_from: outputs/text}
        adapter: {kind: lora, rank: 4, merge: true}
        objective: {kind: instruct, label_smoothing: 0.1}
        optimizer: {kind: muon, lr: 0.02}
        """,
        ("finetune instruct.yaml",),
    ),
    "chats": Run(
        """
        data: {train: chats.jsonl, split: 20%, fields: {messages: talk}}
        model: {init_from: outputs/stream}
        adapter: {rank: 2, alpha: 4, targets: [stack.layers.1.*]}
        objective: {kind: instruct}
        optimizer: {lr: 1e-2}
        train: {batch_tokens: 256, context: 48}
        """,
        ("finetune chats.yaml",),
    ),
}


def needed(words: str) -> set[str]:
    """The runs that these words name, or whose recipe they hold, and those that these begin with."""
    named = {name for name in RUNS if re.search(rf"\b{name}\b", words)}
    return named.union(
        *(needed(found[1]) for name in named if (found := re.search(r"init_from: outputs/(\w+)", RUNS[name].recipe)))
    )


def write_files(folder: Path) -> None:
    """All recipes, and all that they read: texts and pairs of the tests, and rows from a generator with a seed."""
    (folder / "base.yaml").write_text(BASE)
    for name, run in RUNS.items():
        (folder / f"{name}.yaml").write_text(f"extends: base.yaml{dedent(run.recipe)}")
    for name in ("tiny.txt", "other.txt", "reversed.tsv"):
        shutil.copy(DATA / name, folder)
    tiny_tasks.opinions(folder / "opinions.jsonl")
    tiny_tasks.names(folder / "names.conll")
    (folder / "sentences.txt").write_text("\n\n".join(" ".join(words) for words, _ in tiny_tasks.NAMES))
    draw = random.Random(0)
    words = [
        "the",
        "old",
        "king",
        "of",
        "a",
        "small",
        "house",
        "saw",
        "two",
        "birds",
        "near",
        "river",
        "and",
        "went",
        "home",
    ]

    def some(least: int = 2, most: int = 6) -> str:
        return " ".join(draw.choices(words, k=draw.randint(least, most)))

    ratings = [(some(), some(), draw.randint(0, 50) / 10) for _ in range(60)]
    questions = [{"prompt": some(), "response": [some(), some()] if n % 5 == 0 else some(1, 3)} for n in range(60)]
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    chats = [{"talk": [{"role": role, "content": some(1, 3)} for role in roles[n % 2 : 3 + n % 4]]} for n in range(60)]
    (folder / "ratings.csv").write_text("".join(f'"{one}","{other}",{stars}\n' for one, other, stars in ratings))
    similar = [f"{some()},{some()},{some()}\n" for _ in range(40)]
    (folder / "similar.csv").write_text("".join(["text,positive,negative\n", *similar]))
    scored = [f"{one},{other},{stars}\n" for one, other, stars in ratings[:20]]
    pairs = [f"{some()},{some()},\n" for _ in range(10)]
    (folder / "scored.csv").write_text("".join(["text,positive,score\n", *scored, *pairs]))
    minimal = [
        {"sentence_good": f"the {word} was old", "sentence_bad": f"the {word} were old", "UID": word}
        for word in ("king", "house")
    ]
    targets = [{"Domain": "a", "Context1": "the old king", "Target1": word, "Target2": "river"} for word in words[:3]]
    lists = (("questions", questions), ("chats", chats), ("minimal", minimal))
    for name, rows in (*lists, ("babylm/blimp_fast/minimal", minimal), ("babylm/ewok_fast/a", targets)):
        (file := folder / f"{name}.jsonl").parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
