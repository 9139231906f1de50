"""Numbers with units, and numbers of options: each unit begins where the one before it reads as 1,000 or 1,024."""

import pytest

from mini_tf.cli.terminal.numbers import doubled, duration, in_bytes, in_flop, number, short
from mini_tf.recipe.values import Share
from mini_tf.system.errors import UsageFault


def test_numbers_have_the_largest_unit_in_which_they_are_at_least_one() -> None:
    assert [short(n) for n in (0, 1, 999, 1000, 1_234_567, 999e9, 1e12, 5e18, 2e22)] == [
        *("0", "1", "999", "1 k", "1.23 M", "999 G", "1 T", "5 E", "2e+04 E"),
    ]
    assert [in_flop(n) for n in (12, 2500, 3.5e15)] == ["12 FLOP", "2.5 kFLOP", "3.5 PFLOP"]
    assert [in_bytes(n) for n in (1023, 1024, 1536, 1 << 20, 5 << 30, 1 << 50)] == [
        *("1023 bytes", "1 KiB", "1.5 KiB", "1 MiB", "5 GiB", "1024 TiB"),
    ]


def test_times_have_the_unit_that_people_use() -> None:
    seconds = (0.0312, 0.9994, 0.9995, 75, 99.4, 99.5, 5399, 5400, 9000)
    assert [duration(n) for n in seconds] == ["31.2 ms", "999 ms", "1 s", "75 s", "99.4 s", "1.7 min", "90.0 min", "1.5 h", "2.5 h"]


def test_a_range_is_its_first_number_doubled_up_to_its_last() -> None:
    assert doubled("--lengths", "128..1024", 1024) == [128, 256, 512, 1024]
    assert doubled("--lengths", "3..23", 100) == [3, 6, 12]
    assert doubled("--lengths", "7..7", 7) == [7]
    for text in ("0..8", "8..4", "1..101", "1", "1..2..3", "a..b", "-1..2", "1.5..3", "٣..٤", ".."):
        with pytest.raises(UsageFault, match=f"--lengths {text}".replace(".", r"\.")):
            doubled("--lengths", text, 100)


@pytest.mark.parametrize(
    ("text", "least", "most", "value"),
    [
        *(("25", None, None, 25.0), ("5e-6", None, None, 5e-6), ("0", 0.0, None, 0.0), ("2", 2.0, 2.0, 2.0)),
        *(("0", None, None, None), ("-1", None, None, None), ("1.9", 2.0, None, None), ("2.1", None, 2.0, None)),
        *(("x", None, None, None), ("nan", None, None, None), ("inf", None, None, None)),
    ],
)
def test_a_number_of_an_option_is_within_its_bounds(text: str, least: float | None, most: float | None, value: float | None) -> None:
    if value is not None:
        assert number("--x", text, "25", least=least, most=most) == value
        return
    bound = "above 0" if least is None else f"of at least {least:g}"
    upper = "" if most is None else f" and at most {most:g}"
    with pytest.raises(UsageFault) as fault:
        number("--x", text, "25", least=least, most=most)
    assert str(fault.value) == f"--x {text}: must be a number {bound}{upper}, such as 25"


def test_a_share_may_be_written_in_percent() -> None:
    assert number("--x", "40%", "40%", Share) == pytest.approx(0.4)
