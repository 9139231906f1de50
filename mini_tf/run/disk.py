"""The few file operations a run folder is written with; tests hand in one that dies, or fails, at any of them."""

import os
import shutil
from pathlib import Path

TEMPORARY = ".tmp-"
"""Prefix of what is not finished yet: swept by the next save, never read."""


class Disk:
    """The real disk. Every operation is either done when it returns, or raises OSError."""

    def mkdir(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """A whole file that survives a power cut (fsync), though its name may not until `sync(path.parent)`."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync(self, folder: Path) -> None:
        """Make the names in a folder survive a power cut."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, folder: Path) -> None:
        """Remove a folder and all in it; links are removed, never followed."""
        shutil.rmtree(folder)

    def free(self, folder: Path) -> int:
        """Bytes this process may still write."""
        return shutil.disk_usage(folder).free


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Put a file in place of another so that a reader, or a crash, meets the old one or the new one, never a part."""
    temporary = path.with_name(TEMPORARY + path.name)
    disk.write(temporary, data)
    disk.rename(temporary, path)
    disk.sync(path.parent)
