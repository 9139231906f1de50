"""A record of behaviour, before and after a change: what short runs of every kind leave behind, what all commands say.

    python -m tests.record before.json               # about two minutes on one core
    python -m tests.record --compare before.json     # once more, and what differs; exit code 1 where something does
    python -m tests.record --compare before.json after.json
    python -m tests.record --compare before.json --only masked 'inspect*'

For changes that must not change anything: it says which run, tensor, metric or message did. It holds on one machine
with the same software; records of two machines are not compared. runs.py and commands.py are what is recorded,
making.py records it, normalise.py says what may differ, compare.py what does.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where pytest finds commands.py and tiny_tasks.py too
