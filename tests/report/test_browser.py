"""The page in a real browser: no error, no request, toggles, sorting, values, keyboard, contrast, phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.browser import MISSING, Browser, open_browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
NODE_PATH = [each for each in os.environ.get("NODE_PATH", "").split(":") if each]
MODULES = (*NODE_PATH, str(Path(__file__).parents[2] / "node_modules"))
"""Where npm may have put axe-core."""
AXE = next((each for root in MODULES if (each := Path(root, "axe-core", "axe.min.js")).is_file()), None)
TAB, RIGHT, DOWN, ESCAPE, SPACE, ENTER = "\ue004", "\ue014", "\ue015", "\ue00c", " ", "\ue007"
TIP = "const tip = document.querySelector('.tip:not([hidden])'); return tip && tip.textContent;"
HIDDEN = (
    "return [...document.querySelectorAll('svg .series-0')]"
    ".map(part => getComputedStyle(part).visibility === 'hidden');"
)


@pytest.fixture(scope="module")
def browser(report: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that has loaded the page without an error, a warning or a request to a network."""
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(report[0] / "index.html")
        yield browser
        assert browser.log() == []
        assert [each for each in browser.requests() if not each.startswith(("file:", "data:"))] == []


def test_it_loads_without_errors_and_requests(browser, report):
    assert browser.log() == []
    requests = browser.requests()
    assert (report[0] / "index.html").absolute().as_uri() in requests
    assert [each for each in requests if not each.startswith(("file:", "data:"))] == []


def test_check_boxes_hide_a_method_in_all_figures(browser):
    figures = browser.run(
        "return [...document.querySelectorAll('figure')].filter(f => f.querySelector('.series-0')).length;"
    )
    assert figures > 12
    assert not any(browser.run(HIDDEN))
    browser.click("#toggles input")
    assert all(browser.run(HIDDEN))
    browser.click("#toggles button[value=all]")
    assert not any(browser.run(HIDDEN))
    browser.click("#toggles button[value=none]")
    assert all(browser.run(HIDDEN))
    browser.click("#toggles button[value=all]")


def test_tables_sort_by_numbers_and_by_text(browser):
    column = "document.querySelector('#tables table.sortable')"
    heads = browser.run(f"return [...{column}.tHead.rows[0].cells].map(c => c.textContent);")
    for name, as_number in (("accuracy", True), ("method", False)):
        n = heads.index(name)
        button = f"#tables table.sortable th:nth-child({n + 1}) button"
        for sign, words in ((1, "ascending"), (-1, "descending")):
            browser.click(button)
            cells = browser.run(
                f"return [...{column}.tBodies[0].rows].map(row => row.cells[{n}])"
                ".map(cell => [cell.dataset.value, cell.textContent]);"
            )
            found = [float(value) if as_number else text for value, text in cells]
            known = [each for each in found if each == each]
            assert known == sorted(known, reverse=sign < 0)
            assert len(known) > 1
            assert found[: len(known)] == known, "unknown values are last"
            head = f"{column}.tHead.rows[0].cells[{n}]"
            assert browser.run(f"return {head}.getAttribute('aria-sort');") == words


def test_the_pointer_and_the_arrow_keys_read_values(browser):
    [x, y, text] = browser.run(
        "const plot = document.querySelector('#accuracy-by-round .plot');"
        "plot.scrollIntoView({block: 'center'});"
        "const group = JSON.parse(plot.querySelector('script').textContent)[0], [x, y, text] = group.at[0];"
        "const at = new DOMPoint(x, y).matrixTransform(plot.querySelector('svg').getScreenCTM());"
        "return [at.x, at.y, `${group.name}, ${text}`];"
    )
    browser.point(x, y)
    assert browser.run(TIP) == text
    browser.point(x, 2)
    assert browser.run(TIP) is None
    browser.run("document.querySelector('#accuracy-by-round .plot').focus();")
    browser.press(RIGHT)
    assert browser.run(TIP) == text
    browser.press(RIGHT)
    assert browser.run(TIP) not in (None, text)
    browser.press(ESCAPE)
    assert browser.run(TIP) is None
    browser.run("document.querySelector('#class-heatmap .plot').focus();")
    browser.press(RIGHT)
    assert browser.run(TIP).startswith("training samples, client 0, class 0: ")
    browser.press(DOWN)
    assert browser.run(TIP).startswith("training samples, client 0, class 1: ")
    browser.press(TAB)
    assert browser.run(TIP) is None


def test_the_keyboard_reaches_all_controls_and_shows_where_it_is(browser):
    browser.run("document.querySelector('.skip').focus();")
    count = browser.run(
        "return document.querySelectorAll('a, button, input, summary, [tabindex=\"0\"]').length;"
    )
    reached = set()
    for _ in range(count):
        browser.press(TAB)
        here = browser.run(
            "const e = document.activeElement, s = getComputedStyle(e);"
            "return [[...document.querySelectorAll('*')].indexOf(e), e.tagName, s.outlineStyle];"
        )
        if here[1] == "BODY":
            break
        assert here[2] != "none", here
        reached.add(here[0])
    assert len(reached) == count - 1
    browser.run("document.querySelector('#toggles input').focus();")
    browser.press(SPACE)
    assert all(browser.run(HIDDEN))
    browser.press(SPACE)
    assert not any(browser.run(HIDDEN))


def test_a_phone_does_not_scroll_sideways(browser):
    browser.resize(390, 844)
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth];") == [390, 390]
    wide = browser.run(
        "return [...document.querySelectorAll('body *')]"
        ".filter(e => !e.closest('.scroll, svg, .skip, .hidden'))"
        ".filter(e => e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 80));"
    )
    assert wide == []
    browser.resize(1200, 900)


def test_in_print_there_are_no_controls_and_nothing_is_cut_off(browser):
    """On paper of 190 mm without its margins; what is folded on the screen is printed."""
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = false; });")
    browser.print_media(718)
    controls = "nav, fieldset, .skip, .files, .script"
    shown = browser.run(f"return [...document.querySelectorAll('{controls}')].filter(e => e.offsetHeight);")
    assert shown == []
    assert browser.run("return [...document.querySelectorAll('details li')].every(e => e.offsetHeight > 0);")
    wide = browser.run(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.hidden'))"
        ".filter(e => e.getBoundingClientRect().right > 719).map(e => e.outerHTML.slice(0, 80));"
    )
    assert wide == []
    assert browser.paper().startswith(b"%PDF")
    browser.screen_media()
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; });")
    assert browser.run("return document.querySelector('nav').offsetHeight > 0;")


@pytest.mark.skipif(AXE is None, reason="axe-core is not installed: npm install --no-save axe-core")
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_no_violation(browser, width):
    assert AXE is not None
    browser.resize(width, 900)
    browser.run(AXE.read_text("utf-8"))
    browser.send("/timeouts", script=120_000)
    found = browser.send(
        "/execute/async",
        script="const done = arguments[0]; axe.run(document).then(r => done({"
        "bad: r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]), "
        "passed: r.passes.map(p => p.id)}));",
        args=[],
    )
    assert found["bad"] == []
    assert "color-contrast" in found["passed"]
