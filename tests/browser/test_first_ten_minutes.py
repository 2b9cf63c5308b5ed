"""A student's first ten minutes, in the JupyterLab that `make lab` starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from course import exercises
from tests.browser.lab import Notebook, browser_page, open_notebook, server

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SIGNATURE = "def running_mean(xs):\n"
WRONG = SIGNATURE + "    return [sum(xs[: i + 1]) / len(xs) for i in range(len(xs))]"
RIGHT = SIGNATURE + "    return [sum(xs[: i + 1]) / (i + 1) for i in range(len(xs))]"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page() as opened:
        yield opened


def test_a_wrong_answer_is_diagnosed_and_mended(address: str, page: Page) -> None:
    notebook = open_notebook(page, address, "00_start_here.ipynb")
    expect(page.get_by_text("official Jupyter news")).to_have_count(0)
    notebook.run_all()
    expect(notebook.cell("check(running_mean)").locator(".jp-OutputArea")).to_contain_text("not attempted")
    notebook.page.wait_for_timeout(1000)  # let the page settle where it was scrolled to
    notebook.picture("00-untouched")

    notebook.write("def running_mean", WRONG)
    output = notebook.run("check(running_mean)")
    expect(output).to_contain_text("Diagnosis")
    notebook.picture("00-diagnosis", output)

    notebook.write("def running_mean", RIGHT)
    expect(notebook.run("check(running_mean)")).to_contain_text("All of it holds")
    reached = notebook.run("progress()")
    points = exercises.load("running_mean").points
    expect(reached).to_contain_text(f"{points} / {points}")
    notebook.picture("00-progress", reached)
    _dark(notebook)
    notebook.picture("00-progress-dark", reached)


def test_the_slider_of_lesson_01_steps_through_a_graph(address: str, page: Page) -> None:
    notebook = open_notebook(page, address, "01_computational_graphs.ipynb")
    notebook.run_all()
    widget = notebook.cell("step_through(f").locator(".jp-OutputArea").first
    handle = widget.locator(".noUi-handle").first
    expect(handle).to_be_visible()
    before = widget.text_content() or ""
    notebook.picture("01-stepper-first", widget)
    handle.focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    expect(widget).not_to_have_text(before)
    notebook.picture("01-stepper-later", widget)
    _dark(notebook)
    notebook.picture("01-stepper-dark", widget)
    expect(page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)


def _dark(notebook: Notebook) -> None:
    notebook.menu("Settings", "Theme", "JupyterLab Dark")
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
