"""Cache folders of PyTorch, Triton and matplotlib, placed inside minitf's own, so that MINITF_CACHE moves them all.

The libraries read these environment variables when they are first imported or used. No folder is created here.
"""

import os
from pathlib import Path


def cache_path() -> Path:
    """`$MINITF_CACHE`, else ~/.cache/minitf, which need not exist; RuntimeError if the home directory is unknown."""
    return Path(os.environ.get("MINITF_CACHE") or Path.home() / ".cache" / "minitf").absolute()


def redirect_library_caches() -> None:
    """Set the environment variables, for this process and its subprocesses."""
    try:
        folder = cache_path()
    except RuntimeError:
        return  # `cache_folder` reports this where the cache is needed
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    os.environ["TMPDIR"] = str(folder)  # PyTorch writes precompiled headers there
    os.environ["MPLCONFIGDIR"] = str(folder / "matplotlib")  # not shared: our font list is incomplete (drawing/plotting.py)
