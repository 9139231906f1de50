"""The eleven steps from CBOW to BERT in the list of recipes."""

import json
import re

from commands import minitf


def test_the_list_of_recipes_begins_with_the_default_and_shows_a_series_once() -> None:
    lines = minitf("recipe", "list").stdout.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert names[0] == "quickstart"
    assert names[1:] == sorted(names[1:], key=lambda name: re.split(r"(\d+)", name))
    assert "cbow-ladder-1 ... 11" in names
    rows = json.loads(minitf("recipe", "list", "--json").stdout)["result"]
    series = [row["name"] for row in rows if row["name"].startswith("cbow-ladder-")]
    assert series == [f"cbow-ladder-{number}" for number in range(1, 12)]
