"""The race of optimizers, played in the JupyterLab that `make lab` starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import open_notebook, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.soak]


def test_the_race_plays_in_the_browser_and_follows_the_keyboard(folder: Path, address: str, page: Page) -> None:
    write_notebook(folder, "race.ipynb", "from course.lessons.widgets.race import race\n\nrace()")
    notebook = open_notebook(page, address, "race.ipynb")
    notebook.run_all()
    widget = notebook.cell("race()").locator(".jp-OutputArea").first
    step = widget.locator(".race-step .noUi-handle")
    expect(step).to_have_attribute("aria-valuenow", "150.0")
    whole = _places(widget)
    notebook.picture("02-race-first", widget)

    widget.locator(".widget-play button").first.click()  # begins again at 0
    expect(step).not_to_have_attribute("aria-valuenow", "150.0")
    expect(step).to_have_attribute("aria-valuenow", "150.0")
    assert _places(widget) == whole

    step.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(step).to_have_attribute("aria-valuenow", "147.0")
    assert _places(widget) != whole
    widget.get_by_role("combobox").select_option("rosenbrock")
    expect(widget).to_contain_text("(1 − x)² + 100 (y − x²)²")
    notebook.picture("02-race-rosenbrock", widget)
    expect(page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)


def _places(widget: Locator) -> list[str]:
    """Where the heads of the paths are."""
    places: list[str] = widget.locator("svg.race").evaluate(
        "svg => [...svg.querySelectorAll('.head')].map(each => getComputedStyle(each).translate)"
    )
    return places
