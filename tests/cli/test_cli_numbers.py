"""Numbers with units and ranges of options, with values by hand."""

from pathlib import Path

import pytest

from mini_tf.cli.terminal import files
from mini_tf.system.errors import UsageFault
from mini_tf.system.limits import limits
from mini_tf.system.numbers import doubled, duration, in_bytes, in_flop, short


def test_numbers_have_the_largest_unit_in_which_they_are_at_least_one() -> None:
    assert [short(n) for n in (0, 1, 999, 1000, 1_234_567, 999e9, 1e12, 5e18, 2e22)] == [
        *("0", "1", "999", "1 k", "1.23 M", "999 G", "1 T", "5 E", "2e+04 E")
    ]
    assert [in_flop(n) for n in (12, 2500, 3.5e15)] == ["12 FLOP", "2.5 kFLOP", "3.5 PFLOP"]
    assert [in_bytes(n) for n in (1023, 1024, 1536, 1 << 20, 5 << 30, 1 << 50)] == [
        *("1023 bytes", "1 KiB", "1.5 KiB", "1 MiB", "5 GiB", "1024 TiB")
    ]


def test_times_have_the_unit_that_people_use() -> None:
    seconds = (0.0312, 0.9994, 0.9995, 75, 99.4, 99.5, 5399, 5400, 9000)
    shown = ["31.2 ms", "999 ms", "1 s", "75 s", "99.4 s", "1.7 min", "90.0 min", "1.5 h", "2.5 h"]
    assert [duration(n) for n in seconds] == shown


def test_a_range_is_its_first_number_doubled_up_to_its_last() -> None:
    assert doubled("--lengths", "128..1024", 1024) == [128, 256, 512, 1024]
    assert doubled("--lengths", "3..23", 100) == [3, 6, 12]
    assert doubled("--lengths", "7..7", 7) == [7]
    for text in ("0..8", "8..4", "1..101", "1", "1..2..3", "a..b", "-1..2", "1.5..3", "٣..٤", ".."):
        with pytest.raises(UsageFault, match=f"--lengths {text}".replace(".", r"\.")):
            doubled("--lengths", text, 100)


def test_limits_have_binary_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_LIMITS", "line_bytes=3K, recipe_bytes=2M stdin_bytes=1G tokenizer_seconds=7")
    found = limits()
    assert (found.line_bytes, found.recipe_bytes, found.stdin_bytes, found.tokenizer_seconds) == (
        3072,
        2 << 20,
        1 << 30,
        7,
    )


def test_one_output_file_cannot_be_named_twice(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageFault, match="--output: one file is named twice"):
        files.check([tmp_path / "a.json", tmp_path / "." / "b" / ".." / "a.json"], [".json"], force=False)
