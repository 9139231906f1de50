"""What may differ between two records of one behaviour on one machine: a table of patterns, what is compared in their
place, and why.
"""

import re
from typing import NamedTuple


class Rule(NamedTuple):
    pattern: str
    instead: str
    reason: str


RULES = [
    Rule(
        r"\b[0-9a-f]{64}\b", "<hash>", "hashes of data, tokenizers and weights, by which stores are known (runs show)"
    ),
    Rule(r"(?<=\()[0-9a-f]{12}(?=\))", "<hash>", "the name of a store in the cache (-v)"),
    Rule(r"(?<=\w)-[0-9a-f]{6}(?![\w-])", "-<id>", "the run id at the end of a generated folder name"),
    Rule(r"(run_id\W+)[0-9a-f]{12}", r"\1<id>", "the run id in a file of tensors (inspect attention -o)"),
    Rule(r"(?<=minitf )\d+\.\d[\w.+]*|(?<=\"minitf\": \")[^\"]+", "<version>", "a release changes it"),
    Rule(
        r"(\"(?:before[.])?(?:minutes|seconds|tokens_per_second|mfu|peak)[\w.]*\": )[-+.\de]+",
        r'\1"<measured>"',
        "clock and process memory (JSON)",
    ),
    Rule(r"evaluation [\d.]+ \w+ before, [\d.]+ \w+ after", "evaluation <measured>", "the clock (convert)"),
    Rule(r"(?m)^(minutes\S*) .*", r"\1 <measured>", "the clock (runs show)"),
    Rule(r"\b20\d\d-\d\d-\d\d\b", "<date>", "the clock"),
    Rule(r"(?m)([kM]) +\d+\.\d( |$)", r"\1 <min>\2", "the clock (runs list)"),
    Rule(r" \| ETA [\d:]+", "", "the clock; given only where it is a second or more"),
    Rule(r"[\d.e+]+k? tok/s", "N tok/s", "the clock"),
    Rule(r"\d+ ms per step, [\d.]+ minutes", "<measured>", "the clock (--dry-run)"),
    Rule(r"[\d.]+ GiB", "<measured>", "free memory and disk (doctor)"),
    Rule(r"(?<=\"system\": \")[^\"]+", "<system>", "an update of the kernel changes it (doctor)"),
]
UNCOMPARED = {
    ".png": "pictures: only that they are written",
    ".svg": "pictures: only that they are written",
    "recipe.yaml": "as given",
    "resolved.yaml": "a new key would stand in all of them; `recipe show` and --print-config tell it",
    "run.json": "process, times, run id; `runs show` tells the rest",
    "log.txt": "times, run id; stderr has the rest",
    "timing.jsonl": "times",
    "counters.json": "times",
    "MANIFEST.json": "run id, and hashes of the files beside it",
}
"""Files by name or suffix of which a record has only that they are there."""


def normalised(text: str) -> str:
    for rule in RULES:
        text = re.sub(rule.pattern, rule.instead, text)
    return text
