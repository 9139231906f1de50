"""What kinds give in processes with other hash seeds (PYTHONHASHSEED), in which a set of texts has another order."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import Kind, listing, settings_of
from mini_tf.testing.kinds import kinds_in

N_ROWS = 200
"""Rows of a corpus that are compared."""
VOCAB_SIZE = 300


def depend_on_hash_seed(settings: Iterable[Kind], text: str = "") -> list[str]:
    """The kinds, of tokenizers trained on `text` or of corpora, that give something else with another hash seed.

    A kind that is not the `Settings` of a file of its package of kinds cannot be made in another process and is left
    out.
    """
    records = []
    for one in settings:
        module, of_package = type(one).__module__, f".{one.PACKAGE}.{one.kind}"
        if module.endswith(of_package) and type(one).__name__ == "Settings":
            folder = Path(str(sys.modules[module].__file__)).parents[of_package.count(".") - 1]
            values = one.model_dump(mode="json", exclude_defaults=True)
            records.append({"package": one.PACKAGE, "kind": one.kind, "folder": str(folder), "settings": values})
    command = [sys.executable, "-m", __name__, json.dumps({"kinds": records, "text": text})]
    results = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"a process with PYTHONHASHSEED={seed} failed: {done.stderr[-1000:]}"
        results.append(json.loads(done.stdout))
    return [one["kind"] for one, first, second in zip(records, *results, strict=True) if first != second]


def main(kinds: list[dict[str, Any]], text: str) -> list[str]:
    """A hash of what each kind gives in this process."""
    hashes = []
    for record in kinds:
        with ExitStack() as entered:
            if record["kind"] not in listing(record["package"]):
                entered.enter_context(kinds_in(Path(record["folder"])))
            settings = settings_of(record["package"], record["kind"]).model_validate(record["settings"])
            made = ""
            if isinstance(settings, TokenizerSettings):
                made = settings.train(VOCAB_SIZE, [text]).to_str()
            elif isinstance(settings, CorpusSettings):
                made = json.dumps([*islice(map(dict, settings.rows()), N_ROWS)])
            hashes.append(sha256(made.encode()).hexdigest())
    return hashes


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
