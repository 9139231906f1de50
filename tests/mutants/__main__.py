"""Mutation testing, which can be stopped at any time and goes on: `python -m tests.mutants`.

First every test file that is new or has changed is run once to see which lines it reaches (all: about 20 minutes of a
processor), then each mutant that is left is put to its tests (about a second of a processor for one that is found, up
to the limit for one that survives), then what survived and a table are printed. A survivor gets a test, or an entry
with the reason why it changes nothing in `tests/mutants/equivalent.yaml`. Needs the extras `test` and `mutants`. To
begin anew, as after a change of what all tests share, remove the folder it keeps.
"""

import argparse
import fcntl
import signal
import sys
import time
from pathlib import Path

from . import forked
from .reach import Reach
from .report import Reasons, diffs, entries, table
from .run import Results
from .sample import SIZES, Mutant, files_of, sample

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--package", action="append", choices=SIZES, help="only this one; can be given again (default: all)"
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="FILE", help="see only what these test files reach, such as test_mixers.py"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=30, help="seconds of tests that a mutant gets (default: 30)")
    parser.add_argument(
        "--work", type=Path, default=Path("~/.cache/minitf-mutants").expanduser(), help="where everything is kept"
    )
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument(
        "--entries",
        action="store_true",
        help="print survivors as entries for equivalent.yaml, to which a reason is added",
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # which ends the processes that are running
    packages = {package: sample(ROOT, package, given.work / "samples") for package in given.package or SIZES}
    sources = [name for package in SIZES for name in files_of(ROOT, package)]
    reach = Reach(ROOT, given.work, sources)
    trees = []
    if not given.report:
        alone = open(given.work / "lock", "w")  # noqa: SIM115  held until the process ends
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another run uses {given.work}")
        forked.prepare()
        names = forked.checkout(ROOT)
        trees = [forked.Tree(ROOT, given.work.resolve() / f"tree-{n}", names) for n in range(given.workers)]
        for name, not_passed in reach.record(trees, given.tests or []):
            _say(
                f"{name}:"
                f" {'gave nothing' if not_passed < 0 else f'{not_passed} did not pass' if not_passed else 'recorded'}"
            )
    reasons = Reasons.read()
    everything = [mutant for mutants in packages.values() for mutant in mutants]
    unfit = [""]
    while unfit:
        tests = reach.load()
        results = Results(ROOT, given.work, tests, 0 if given.report else given.limit)
        left = [mutant for mutant in everything if results.of(mutant) is None and not reasons.of(mutant)]
        for n, (mutant, known) in enumerate(results.run(trees, _mixed(left)) if trees else (), 1):
            _say(f"{n}/{len(left)} {mutant.file}:{mutant.line} {known['outcome']} {known['by']}")
        unfit = list(results.control(trees, everything)) if trees else []
    print(entries(packages, results, reasons) if given.entries else diffs(packages, results, reasons, ROOT))
    for entry in reasons.idle(everything) if not given.package else []:
        print(f"fits no mutant of the sample: {entry}")
    if tests.unfit:
        print(f"fail without a fault, so are not used: {', '.join(sorted(tests.unfit))}")
    print(table(packages, results, reasons))


def _mixed(mutants: list[Mutant]) -> list[Mutant]:
    """In an order that has nothing to do with the packages, so that a part that was run is a sample as well."""
    return sorted(mutants, key=lambda mutant: mutant.key)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
