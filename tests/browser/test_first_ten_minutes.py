"""A student's first ten minutes, in the JupyterLab that `make lab` starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from course import exercises
from tests.browser.lab import Notebook, open_notebook, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SIGNATURE = "def running_mean(xs):\n"
WRONG = SIGNATURE + "    return [sum(xs[: i + 1]) / len(xs) for i in range(len(xs))]"
RIGHT = SIGNATURE + "    return [sum(xs[: i + 1]) / (i + 1) for i in range(len(xs))]"


# The cells of lesson 01 down to its slider.
GRAPH = """
from course.lessons.graph import Node, named
from course.lessons.widgets.stepper import step_through

x, y = named(Node(3.0), "x"), named(Node(4.0), "y")
f = 2.0 * x * x - x * y
step_through(f, title="Which numbers must be known before the next one can be?")
"""


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
    with _dark(notebook):
        notebook.picture("00-progress-dark", reached)


@pytest.mark.parametrize("name", ["graph.ipynb", pytest.param("01_computational_graphs.ipynb", marks=pytest.mark.soak)])
def test_the_slider_of_lesson_01_steps_through_a_graph(folder: Path, address: str, page: Page, name: str) -> None:
    write_notebook(folder, "graph.ipynb", GRAPH)
    notebook = open_notebook(page, address, name)
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
    with _dark(notebook):
        notebook.picture("01-stepper-dark", widget)
    expect(page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)


@contextlib.contextmanager
def _dark(notebook: Notebook) -> Iterator[None]:
    """In the dark theme, which the server would keep for the next page."""
    _choose(notebook, "Dark")
    yield
    _choose(notebook, "Light")


def _choose(notebook: Notebook, theme: str) -> None:
    notebook.menu("Settings", "Theme", f"JupyterLab {theme}")
    light = str(theme == "Light").lower()
    expect(notebook.page.locator("body")).to_have_attribute("data-jp-theme-light", light)
