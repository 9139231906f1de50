"""The formats, beside those of Hugging Face's families, that a run is exported to; each other file is one: `--to WORD`.

A format writes a new folder and proves what it wrote by the reader that the format has. A folder that could not be
written, or whose proof fails, is left empty by `exporting.export_model`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from mini_tf.hf.export_folder import Exported, ExportRequest
from mini_tf.recipe.kinds import Kind
from mini_tf.system.errors import Unavailable

__all__ = ["ExportRequest", "Exported", "Format"]


class Format(Kind):
    """A format of exported models."""

    PACKAGE = "hf.formats"

    def check_installed(self) -> None:
        """Import, within `packages`, what it needs beside minitf; Unavailable if something is not installed."""

    @contextmanager
    def packages(self) -> Iterator[None]:
        """A block that imports packages of the extra of its name."""
        try:
            yield
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            fault = f"--to {self.kind} needs the package {package}"
            raise Unavailable(fault, hint=f"pip install 'minitf[{self.kind}]'") from None

    def export(self, request: ExportRequest) -> Exported:
        """Write the model into the folder of the request, and compare its outputs with those of the run.

        RunFault, with the reasons, if the format has no such model or the outputs differ.
        """
        raise NotImplementedError
