"""The file of a page: its numbers, what it may run, hostile texts, its size. What a browser makes of it is tested in
test_drawing_browser.py.
"""

import re
from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import sha256

import numpy as np
import pytest
from page_files import HOSTILE, contents_of, maps_of, page

from mini_tf.drawing import pages, terminal
from mini_tf.drawing.labels import label
from mini_tf.drawing.pages import page_file, page_of, quantize
from mini_tf.drawing.panel import Curves, Marks, Panel, PanelGrid, Scale
from mini_tf.system.errors import UsageFault

ASSETS = {file.name: file.read_text() for file in pages.ASSETS.iterdir()}

FORBIDDEN = re.compile(
    r"https?:|//cdn|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|fetch\(|url\("
)


@pytest.mark.parametrize(("bits", "expected"), [(16, 0.5 / 65534), (8, 0.5 / 254)])
def test_the_numbers_of_a_page_are_those_of_the_maps(
    bits: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = page(["a", " b", "c"] * 9)
    if bits == 8:
        monkeypatch.setattr(pages, "MOST_MEGABYTES", len(page_file(shown)) / 1e6 - 0.001)
    data = page_file(shown)
    contents = contents_of(data)
    assert (contents["bits"], contents["error"]) == (bits, pytest.approx(expected, rel=0.02))
    for numbers, one in zip(maps_of(data), [one for scene in shown.scenes for one in scene.maps], strict=True):
        np.testing.assert_allclose(numbers, one.panel.values, rtol=0, atol=contents["error"] * 1.001)


@pytest.mark.parametrize("values", [[[np.nan, np.nan]], [[0.25, 0.25]], [[-3.0, np.inf]], [[0.0, 1e-7]], [[]]])
def test_maps_without_a_range_are_coded(values: list[list[float]]) -> None:
    low, step, codes = quantize(np.array(values), 8)
    decoded = np.where(codes == 0, np.nan, low + (codes.astype(float) - 1) * step)
    finite = np.where(np.isfinite(values), values, np.nan)
    assert np.isfinite(values).any() or (low, step) == (0, 0)
    np.testing.assert_allclose(decoded, finite, rtol=0, atol=step / 2 + 1e-12)


def test_hostile_tokens_end_no_script_and_are_shown_as_everywhere() -> None:
    shown = page(HOSTILE)
    data = page_file(replace(shown, title=HOSTILE[0], notes=HOSTILE[:4]))
    text = data.decode("ascii", "backslashreplace")
    assert text.count("<script>") == text.count('<script type="application/json"') == 1
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert "\0" not in text
    assert contents_of(data)["labels"] == [[label(token) for token in HOSTILE]]


def test_a_page_runs_only_its_own_script() -> None:
    text = page_file(page(["a", "b"])).decode()
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in text
    assert "default-src 'none'" in text
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in text


def test_the_assets_ask_for_nothing_and_make_no_markup_of_text() -> None:
    assert {"page.js", "page.css", "frame.html"} <= {*ASSETS}
    for name, text in ASSETS.items():
        text = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert not FORBIDDEN.search(text), name
        assert not re.search(r"<[^>]+\son\w+=|<[^>]+\sstyle=", text), name
        assert max(map(len, text.splitlines())) <= (120 if name != "frame.html" else 400), name


def test_a_page_that_is_too_large_names_three_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_MEGABYTES", 0.01)
    with pytest.raises(UsageFault, match=r"the page would have 0 MB; at most 0\.01 MB") as fault:
        page_file(page(["a"] * 20, remedies="show fewer heads"))
    assert fault.value.hint == "show fewer heads"


def test_equal_pages_are_equal_bytes() -> None:
    assert page_file(page(["a", "b"])) == page_file(page(["a", "b"]))


def test_without_scripts_the_page_has_the_measures() -> None:
    [plain] = re.findall("<noscript>(.*?)</noscript>", page_file(page(["a", "b"])).decode())
    assert "<p>L1H2: </p>" in plain
    assert "<p>at 10 | 0.5</p>" in plain
    assert "a &lt;b&gt;text&lt;/b&gt;" in plain


def test_the_page_of_a_view_has_its_maps_tables_sentences_and_curves() -> None:
    marks = Marks(frozenset({(0, 1)}), meanings=("a mark", "", ""))
    panel = Panel("a map", ["x"], ["y", "z"], np.array([[0.5, -0.5]]), "Rows: one.", marks=marks)
    curves = Curves("a curve", [0, 1], "step", "loss", {"train": [2.0, float("nan")]})
    pictures = [
        partial(terminal.table, ["name", "value"], [["<b>", 0.25], ["none", None]]),
        partial(terminal.sentence, "A sentence."),
        partial(terminal.sentence, ""),
        partial(terminal.curves, curves),
    ]
    scale = Scale(-1, 1, diverging=True)
    data = page_file(page_of("a title", PanelGrid([panel], scale, "maps"), pictures, ["a note"]))
    contents = contents_of(data)
    assert (contents["title"], contents["notes"]) == ("maps", ["a note"])
    assert contents["scenes"][0]["maps"][0]["marks"] == [[[0, 1]], [], []]
    assert contents["scenes"][0]["maps"][0]["meaning"] == "□: a mark"
    assert contents["tables"] == [
        {"title": "", "headers": ["name", "value"], "rows": [["<b>", "0.250"], ["none", ""]]},
        {"title": "", "headers": [], "rows": [["A sentence."]]},
    ]
    assert contents["curves"][0]["lines"] == [{"name": "train", "y": [2.0, None]}]
    assert contents_of(page_file(page_of("a title", None, pictures)))["title"] == "a title"
