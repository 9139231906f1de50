"""Pages in a real browser: headless Chromium, without a network. Skipped where there is none (see .ci/run).

Every test fails by a request, a message in the console, an error of the script or a dialog.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_files import HOSTILE, maps_of, page

from mini_tf.drawing.labels import label
from mini_tf.drawing.pages import Page, PageMap, Scene, page_file
from mini_tf.drawing.panel import Curves, Panel

pytestmark = pytest.mark.browser
TOKENS = ["<s>", "the", " cat", " saw", " the", " dog", " and", " ran", "."]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = os.environ.get("MINITF_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        short = os.environ | {"TMPDIR": "/tmp"}  # where another test has set one that is too long for a socket
        chromium = running.chromium.launch(executable_path=program, args=FLAGS, env=short)
        yield chromium
        chromium.close()


class Tab:
    """A tab that opens pages, and what was wrong in it."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder, self.wrong = browser, folder, list[str]()
        self.contexts: list[Any] = []

    def open(self, shown: Page | bytes, address: str = "", **options: Any) -> Any:
        self.data = page_file(shown) if isinstance(shown, Page) else shown
        file = self.folder / f"page{len(self.contexts)}.html"
        file.write_bytes(self.data)
        context = self.browser.new_context(offline=True, **options)
        self.contexts.append(context)
        tab = context.new_page()
        local = ("file:", "data:", "blob:")
        tab.on("request", lambda request: None if request.url.startswith(local) else self.wrong.append(request.url))
        tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        tab.on("console", lambda message: self.wrong.append(message.text))
        tab.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        tab.goto(file.as_uri() + address)
        tab.wait_for_selector("header, body > p")
        return tab


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Tab]:
    made = Tab(browser, tmp_path)
    yield made
    for context in made.contexts:
        context.close()
    assert made.wrong == []


def test_hostile_tokens_are_text_in_a_page_that_asks_for_nothing(tab: Tab) -> None:
    shown = tab.open(page(HOSTILE))
    assert shown.title() == "A <i>page</i>"
    assert shown.locator("body :is(img, iframe, object, b, i)").count() == 0
    assert [text.removesuffix("…") for text in shown.locator(".token").all_text_contents()] == [
        label(token)[: len(text.removesuffix("…"))]
        for token, text in zip(HOSTILE, shown.locator(".token").all_text_contents(), strict=True)
    ]
    assert shown.locator(".token").nth(5).text_content() == "⟨D800⟩"
    with pytest.raises(Exception, match="TrustedHTML"):
        shown.evaluate("document.body.innerHTML = '<img src=x>'")
    assert all("TrustedHTML" in message for message in tab.wrong)
    tab.wrong.clear()


def test_the_script_reads_the_numbers_of_the_file(tab: Tab) -> None:
    shown = tab.open(page(TOKENS, n_scenes=3))
    read = shown.evaluate(
        """scenes.flatMap(({ maps }) => maps).map((map) =>
            map.rows.map((_, i) => map.columns.map((_, j) => value(map, i, j))))"""
    )
    np.testing.assert_array_equal(np.array(read, float), np.stack(maps_of(tab.data)))


def test_heads_are_sorted_by_layer_role_or_entropy(tab: Tab) -> None:
    shown = tab.open(page(TOKENS))
    groups = shown.locator("#grid h3")
    assert groups.all_text_contents() == ["decoder.self layer 0", "decoder.self layer 1"]
    shown.get_by_label("sort by").select_option("role")
    assert groups.all_text_contents() == ["induction", "previous", "no role"]
    shown.get_by_label("sort by").select_option("entropy")
    entropies = [float(text.split()[-1]) for text in shown.locator(".head small").all_text_contents()]
    assert entropies == sorted(entropies)
    assert len(entropies) == 6


def test_the_address_opens_the_same_place(tab: Tab) -> None:
    shown = tab.open(page(TOKENS), "#L1H2/q3+4/s1/lines")
    assert shown.locator("#open h2").text_content() == "L1H2"
    assert shown.get_by_role("button", name="lines").get_attribute("aria-pressed") == "true"
    assert shown.locator(".token[aria-pressed=true]").all_text_contents() == ["·saw", "·the"]
    expected = np.nansum(maps_of(tab.data)[6 + 5][3:5], axis=0)
    best = int(expected.argmax())
    assert f"{label(TOKENS[best])} ({best}) {expected[best]:.2f}" in shown.locator("#said").text_content()
    shown.locator(".head").nth(1).click()
    assert shown.url.endswith("#L0H1/q3%2B4/s1/lines")
    shown.evaluate("location.hash = '#L1H0'")
    shown.wait_for_function("document.querySelector('#open h2').textContent === 'L1H0'")
    assert tab.open(page(TOKENS), "#no-such/q999/s99/%3Cimg%3E").locator("#open h2").text_content() == "L0H0"
    assert tab.open(page(TOKENS), "#%E0%A4%A").locator("#open h2").text_content() == "L0H0"


def test_the_keyboard_alone_reaches_everything(tab: Tab) -> None:
    shown = tab.open(page(TOKENS))

    def tab_to(selector: str) -> None:
        for _ in range(40):
            if shown.evaluate(f"document.activeElement.matches({selector!r})"):
                return
            shown.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {selector}")

    for selector in ("header button", "select", "input[type=search]", ".scroll", ".token", "summary", ".head"):
        tab_to(selector)
    shown.keyboard.press("End")
    shown.keyboard.press("Enter")
    assert shown.locator("#open h2").text_content() == "L1H2"
    tab_to(".scroll")
    for key in ("ArrowDown", "ArrowLeft", "ArrowDown", "Enter"):
        shown.keyboard.press(key)
    number = maps_of(tab.data)[5][1, 0]
    assert shown.locator("#said").text_content().endswith(f"the (1), <s> (0): {number:.4f}")
    assert shown.url.endswith("#L1H2/q1")
    shown.keyboard.press("Escape")
    assert "Choose a query" in shown.locator("#said").text_content()
    tab_to("summary")
    shown.keyboard.press("Enter")
    shown.locator("#open details th[scope=row]").nth(len(TOKENS) - 1).wait_for()


def test_the_tables_have_the_numbers_of_the_map(tab: Tab) -> None:
    shown = tab.open(page(TOKENS), "#L0H1/q8")
    shown.locator("summary").click()
    shown.locator("#open details table").first.wait_for()
    weights = shown.locator("#open details table").first.locator("tbody td:last-child").all_text_contents()
    assert weights == [f"{number:.4f}" for number in maps_of(tab.data)[1][8]]
    assert shown.locator("#open details caption").last.text_content() == "all heads"


def test_pointing_shows_a_query_and_clicks_add_queries(tab: Tab) -> None:
    shown = tab.open(page(TOKENS))
    numbers = maps_of(tab.data)[0]
    box = shown.locator(".cells").bounding_box()
    cell = box["height"] / len(TOKENS)
    shown.mouse.move(box["x"] + 1.5 * cell, box["y"] + 4.5 * cell)
    assert shown.locator("#said").text_content().endswith(f"·the (4), the (1): {numbers[4, 1]:.4f}")
    shown.mouse.move(box["x"] + 4.5 * cell, box["y"] + 1.5 * cell)
    assert shown.locator("#said").text_content().endswith("not visible")
    shown.locator(".token").nth(3).click()
    shown.locator(".token").nth(8).click()
    assert "·saw (3) + . (8)" in shown.locator("#said").text_content()
    expected = [f"{number:.3f}" for number in np.nansum(numbers[[3, 8]], axis=0)]
    assert [one.get_attribute("title").split()[-1] for one in shown.locator(".token").all()] == expected


def test_a_token_is_found(tab: Tab) -> None:
    shown = tab.open(page(TOKENS))
    search = shown.get_by_role("searchbox")
    search.fill("the")
    assert shown.locator(".token.found").all_text_contents() == ["the", "·the"]
    search.press("Enter")
    search.press("Enter")
    assert shown.locator("#said").text_content().startswith("·the (4)")


def test_checkpoints_stand_side_by_side_and_under_a_slider(tab: Tab) -> None:
    curves = [Curves("loss", [0, 10, 20], "step", "loss", {"": [3, 2, 1]})]
    shown = tab.open(page(TOKENS, n_scenes=3, slider="step", curves=curves))
    assert shown.locator("#tables tbody th").all_text_contents() == ["at 0"]
    slider = shown.get_by_role("slider")
    slider.focus()
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("ArrowRight")
    assert (shown.locator("output").text_content(), shown.url[-7:]) == ("20", "L0H0/s2")
    assert shown.locator("#tables tbody th").all_text_contents() == ["at 20"]
    shown.get_by_label("beside it").select_option("0")
    assert shown.locator("#open figure").count() == 2
    assert shown.locator("#open figure h3").first.text_content() == "a <b>text</b>, 20"
    assert shown.locator("#tables tbody th").all_text_contents() == ["at 20", "at 0"]


def test_cross_attention_has_a_text_of_queries_and_one_of_keys(tab: Tab) -> None:
    weights = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    maps = [
        PageMap(Panel("", TOKENS[:3], TOKENS[3:5], weights), "cross.L0H0", "cross", 0, 0),
        PageMap(Panel("", TOKENS[:3], TOKENS[:3], np.eye(3)), "decoder.self.L0H0", "decoder.self", 0, 0),
    ]
    shown = tab.open(Page("pairs", [Scene({}, maps)], row="query", column="key"), "#cross.L0H0/q0")
    assert shown.locator("#open .text h3").all_text_contents() == ["queries", "keys"]
    assert shown.locator("#grid h3").all_text_contents() == ["cross layer 0", "decoder.self layer 0"]
    titles = [one.get_attribute("title") for one in shown.locator(".text").last.locator(".token").all()]
    assert titles == ["·saw (0) 0.250", "·the (1) 0.750"]
    shown.locator(".head").last.click()
    assert shown.locator("#open .text h3").all_text_contents() == ["text"]


def test_the_shown_picture_is_saved(tab: Tab) -> None:
    shown = tab.open(page(HOSTILE), "#L0H1", accept_downloads=True)
    contents = {}
    for name in ("PNG", "SVG"):
        with shown.expect_download() as download:
            shown.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"minitf-L0H1.{name.lower()}"
        contents[name] = Path(download.value.path()).read_bytes()
    assert contents["PNG"].startswith(b"\x89PNG")
    text = contents["SVG"].decode()
    assert "<image" not in text
    assert "<img" not in text
    assert text.count("<rect") > len(HOSTILE) ** 2
    assert "漢字" in text


def test_cells_have_the_colors_of_their_numbers(tab: Tab) -> None:
    shown = tab.open(page(TOKENS))
    pixels = shown.evaluate(
        """(n) => {
            const canvas = document.querySelector(".cells"), cell = canvas.width / n;
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const corner = (i, j) => 4 * (Math.floor((i + 0.1) * cell) * canvas.width + Math.floor((j + 0.1) * cell));
            const pixel = (i, j) => [...data.slice(corner(i, j), corner(i, j) + 3)];
            return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => pixel(i, j)));
        }""",
        len(TOKENS),
    )
    numbers, brightness = maps_of(tab.data)[0], np.array(pixels).sum(axis=2)
    seen = np.tril_indices(len(TOKENS))
    order = np.argsort(numbers[seen], kind="stable")
    assert (np.diff(brightness[seen][order]) <= 0).all()
    assert {tuple(pixels[i][j]) for i, j in zip(*np.triu_indices(len(TOKENS), 1), strict=True)} == {(230, 233, 237)}


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (2000, "light")])
def test_a_page_fits_every_screen_without_faults_of_access(tab: Tab, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-playwright-python")
    shown = tab.open(
        page(TOKENS * 4, n_scenes=2, slider="step"),
        "#L0H1/q7",
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        bypass_csp=True,  # axe is a script of its own
    )
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate("document.documentElement.dataset.theme") == scheme
    shown.locator("summary").click()
    shown.locator("#open details table").first.wait_for()
    faults = axe.Axe().run(shown, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [fault for fault in faults if fault["impact"] in ("serious", "critical")]
    assert [(fault["id"], [node["html"][:200] for node in fault["nodes"][:2]]) for fault in serious] == []


def test_a_page_prints_its_map_on_white(tab: Tab) -> None:
    shown = tab.open(page(TOKENS), color_scheme="dark")
    assert shown.pdf()[:5] == b"%PDF-"
    pixel = "document.querySelector('canvas.print').getContext('2d').getImageData(1, 60, 1, 1).data[0]"
    assert shown.evaluate(pixel) == 255


def test_an_old_browser_and_one_without_scripts_say_what_is_missing(tab: Tab) -> None:
    data = page_file(page(TOKENS))
    context = tab.browser.new_context(offline=True, java_script_enabled=False)
    tab.contexts.append(context)
    (tab.folder / "plain.html").write_bytes(data)
    plain = context.new_page()
    plain.goto((tab.folder / "plain.html").as_uri())
    assert "need JavaScript" in plain.locator("body").text_content()
    context = tab.browser.new_context(offline=True)
    tab.contexts.append(context)
    old = context.new_page()
    old.add_init_script("delete window.DecompressionStream")
    old.goto((tab.folder / "plain.html").as_uri())
    assert "needs a current browser" in old.locator("body > p").text_content()


def test_144_heads_of_128_tokens_open(tab: Tab) -> None:
    shown = tab.open(page([f"t{n}" for n in range(128)], n_layers=12, n_heads=12, n_scenes=1), "#L11H11/q127")
    assert shown.locator(".head").count() == 144
    assert len(tab.data) < 10e6
    assert shown.locator(".token[aria-pressed=true]").text_content() == "t127"
