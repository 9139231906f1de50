"""What may lie in a run folder: plain files and folders, so that whoever writes there writes nowhere else.

A folder may have been copied from a stranger: a link in the place of metrics.jsonl would lead to another file of ours,
and a pipe there would never let us go on.
"""

import os
import stat
from pathlib import Path

from mini_tf.system.errors import RunFault
from mini_tf.system.plain_file import kind_of


def refuse_strange(folder: Path) -> None:
    """RunFault naming the first thing in a run folder, or the folder itself, that is no plain file or folder."""
    for path in [folder, *_inside(folder)]:
        mode = path.lstat().st_mode
        what = "a link" if stat.S_ISLNK(mode) else kind_of(mode)
        if what not in (None, "a folder"):
            hint = "remove it, or choose another folder with -d"
            raise RunFault(f"{path} is {what}; a run folder holds plain files and folders", hint=hint, where=[str(path)])


def _inside(folder: Path) -> list[Path]:
    return [Path(parent, name) for parent, folders, files in os.walk(folder) for name in sorted([*folders, *files])]
