"""Where the libraries we stand on keep what can be made again: inside our own cache, so that one setting, MINITF_CACHE, moves it all.

They read these variables when they are first imported or used: torch for what it compiles (also the compiler, for its temporary
files), Triton likewise, matplotlib for its list of fonts. Nothing is created here.
"""

import os
from pathlib import Path


def cache_place() -> Path:
    """`$MINITF_CACHE`, else ~/.cache/minitf, which need not exist; RuntimeError where nobody knows this user's home."""
    return Path(os.environ.get("MINITF_CACHE") or Path.home() / ".cache" / "minitf").absolute()


def keep_library_caches() -> None:
    """Point them into the cache, from now on, in the whole process and in those that it starts."""
    try:
        place = cache_place()
    except RuntimeError:
        return  # whoever needs the cache says so in a line of his own
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(place / "torch"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(place / "triton"))
    os.environ["TMPDIR"] = str(place)  # torch keeps precompiled headers there
    os.environ["MPLCONFIGDIR"] = str(place / "matplotlib")  # our list of fonts is shorter than other programs want (drawing/plotting.py)
