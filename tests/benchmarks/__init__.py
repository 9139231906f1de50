"""How fast minitf is, against peers and against a plain torch loop, on this machine, in one run.

    python -m tests.benchmarks              the small form: step, generation, startup; minutes, no peer needed
    python -m tests.benchmarks --guard      the same; exit code 8 where a ratio falls under its floor
    python -m tests.benchmarks --full --nanogpt FOLDER --text input.txt --out result.json
    python -m tests.benchmarks --device cuda    on a GPU: another benchmark, of 8 minutes (gpu/)
    python -m tests.benchmarks step quality --nanogpt FOLDER --text input.txt --out result.json

A benchmark that is named has its peers and shapes; --full adds what takes an hour. Exit code 1: a side failed. Run it
from the root of the repository, on a quiet machine. FOLDER is a checkout of nanoGPT; the other peers are installed:
`pip install -e '.[bench]'` (transformers, accelerate, litgpt). What is not there is named in the tables, not guessed.

Every side of a comparison is one command that prints one line of JSON, so each can be run alone: `python -m
tests.benchmarks.step minitf 4x128`. The sides take turns, `--runs` times; the tables show medians, and ratios of
neighbours in time. Each measurement is written to `--out` at once, under its command; the same call continues where it
was.

Where to look: one file a benchmark (step, masked, quality, generation, startup, memory). contest.py says what a
comparison is, measuring.py runs it, summary.py compares, table.py shows it, peers.py finds the peers; plain.py is the
plain torch loop's model, loops.py how each side trains, weights.py how all of them start from the same weights. The
other files are scripts of single figures on the pages, which name them; experiments.py is what they share.
"""
