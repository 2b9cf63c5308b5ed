"""One JupyterLab and one Chromium for all tests that look at it, and a new page for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.lab import SECONDS, chromium, server


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server runs, with the notebooks in it."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="package")
def address(folder: Path) -> Iterator[str]:
    """The address of the server, with its token."""
    with server(folder) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, as wide as a laptop, that knows nothing of earlier ones."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * SECONDS)
    yield context.new_page()
    context.close()
