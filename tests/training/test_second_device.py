"""A device with a memory of its own is tried in a new process: torch must know it before the first backward pass."""

import subprocess
import sys
from pathlib import Path

import pytest
from hang import SECONDS

CASES = Path(__file__).with_name("second_device_cases.py")


@pytest.mark.parametrize(
    ("mark", "seconds"), [("not slow", SECONDS), pytest.param("slow", 6 * SECONDS, marks=pytest.mark.slow)]
)
def test_a_device_that_is_not_the_cpu_computes_the_same(mark: str, seconds: int) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", mark, "-p", "no:cacheprovider", str(CASES)]
    process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
