"""Runs minitf commands under an audit hook and says what they did: `python audited.py COMMANDS.json REPORT.json`.

Everything that the report names comes from Python's own audit events (PEP 578), told from the first import of ours on.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
    "os.startfile",
)
NETWORK = ("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "poplib.", "imaplib.", "nntplib.", "telnetlib.")
CHANGES = {  # event: where its paths stand, and behind each the descriptor of the folder it is relative to, if any
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
    "os.setxattr": ((0, None),),
    "os.mkfifo": ((0, 2),),
    "os.mknod": ((0, 3),),
    "shutil.rmtree": ((0, 1),),
    "shutil.copyfile": ((1, None),),
    "shutil.move": ((0, None), (1, None)),
    "tempfile.mkstemp": ((0, None),),
    "tempfile.mkdtemp": ((0, None),),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Record:
    """What happened, by what it is."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.processes: list[list[str]] = []
        self.network: list[str] = []
        self.changed: set[str] = set()
        self.code: list[str] = []
        self.loaded: list[str] = []
        self.running = False

    def __call__(self, event: str, given: Sequence[Any]) -> None:
        if not self.running:
            return
        self.running = False  # what is asked here is no event of the program
        try:
            self._take(event, given)
        finally:
            self.running = True

    def _take(self, event: str, given: Sequence[Any]) -> None:
        if event == "import":
            self.imports.add(given[0])
        elif event.startswith(PROCESSES):
            self.processes.append([event, *map(str, given[1] if event == "subprocess.Popen" else given)])
        elif event.startswith(NETWORK):
            self.network.append(f"{event} {given!r:.200}")
        elif event == "open":
            path, mode, flags = given
            if not isinstance(path, int) and ((mode and set(mode) & set("wax+")) or (flags or 0) & WRITING):
                self.changed.add(whole(path, None))
        elif event == "os.mkdir" and os.path.isdir(given[0]):
            pass  # it stands already, so that nothing changes
        elif event in CHANGES:
            for path, folder in CHANGES[event]:
                if not isinstance(given[path], int):
                    self.changed.add(
                        whole(given[path], given[folder] if folder is not None and folder < len(given) else None)
                    )
        elif event in ("exec", "compile", "marshal.loads", "marshal.load", "pickle.find_class"):
            self._take_code(event, given)
        elif event == "ctypes.dlopen":
            self.loaded.append(str(given[0]))

    def _take_code(self, event: str, given: Sequence[Any]) -> None:
        """Code that somebody runs, but for Python's own imports: who does, and what."""
        by = sys._getframe(3).f_code.co_filename
        if by.startswith("<frozen importlib"):
            return
        what = given[0] if event == "compile" else getattr(given[0], "co_filename", given)
        self.code.append(f"{event} by {by}: {what!r:.2000}")


def whole(path: Any, folder: int | None) -> str:
    """The real path; a name in an open folder is told by that folder's descriptor."""
    base = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) and folder >= 0 else os.getcwd()
    named = Path(base, os.fsdecode(path))
    return str(named.parent.resolve() / named.name)


def main() -> None:
    record = Record()
    sys.addaudithook(record)
    sys.path[0] = str(ROOT)  # not the tests
    commands, report = (Path(name).resolve() for name in sys.argv[1:])
    lines = json.loads(commands.read_text())
    codes = []
    record.running = True
    from mini_tf.cli.app import main as minitf

    for line in lines:
        sys.argv = ["minitf", *line]
        try:
            minitf()
        except SystemExit as leaving:
            codes.append(leaving.code)
    record.running = False
    files = {name: str(getattr(module, "__file__", None)) for name, module in sys.modules.items()}
    seen = {name: sorted(value) if isinstance(value, set) else value for name, value in vars(record).items()}
    report.write_text(json.dumps({**seen, "codes": codes, "modules": files}, indent=1))


if __name__ == "__main__":
    main()
