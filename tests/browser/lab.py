"""A real JupyterLab, started by `course lab`, and a real Chromium that looks at it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tools import system

ROOT = Path(__file__).parents[2]
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
MORE_QUIET = ("--disable-component-update", "--disable-sync")
SECONDS = 60
expect.set_options(timeout=1000 * SECONDS)
SHOTS = ROOT / "build" / "screenshots"


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """`course lab` on a copy of the notebooks; gives the address with its token, and ends what it started."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    port, token = _free_port(), "first-ten-minutes"
    command = [sys.executable, "-m", "course", "lab", "--no-browser", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", "--ServerApp.port_retries=0"]
    homes = {name: str(folder / name) for name in ("XDG_DATA_HOME", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    environment = {**os.environ, **homes, "PYTHONPATH": str(ROOT)}
    with (folder / "lab.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api?token={token}", process, folder / "lab.log")
        yield f"{address}/lab?token={token}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def write_notebook(folder: Path, name: str, source: str) -> None:
    """A notebook with one code cell, among those of a server that runs on `folder`."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    written = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": kernel})
    nbformat.write(written, folder / "notebooks" / name)  # type: ignore[no-untyped-call]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"JupyterLab ended with {process.returncode}: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not answer within {SECONDS} s: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without windows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=system.browser(), args=[*QUIET, *MORE_QUIET])
        yield browser
        browser.close()


@dataclass(frozen=True)
class Notebook:
    """The notebook that is open in the page, worked with mouse and keyboard."""

    page: Page

    def menu(self, *names: str) -> None:
        """Choose an entry of the menu bar."""
        self.page.get_by_role("menuitem", name=names[0], exact=True).first.click()
        for name in names[1:]:
            self.page.locator(".lm-Menu-item", has_text=name).first.click()

    def run_all(self) -> None:
        """*Run All Cells*, and wait until the kernel has nothing left to do."""
        self.menu("Run", "Run All Cells")
        expect(self.page.locator(".jp-CodeCell .jp-InputPrompt").first).to_have_text(re.compile(r"\[\d+\]"))
        self.idle()

    def idle(self, seconds: float = 120) -> None:
        """Wait until no cell waits or runs."""
        self.page.wait_for_function(
            "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(e => e.textContent.includes('*'))",
            timeout=1000 * seconds,
        )

    def cell(self, text: str) -> Locator:
        """The code cell whose source holds this text, scrolled into view."""
        found = self.page.locator(
            ".jp-Notebook .jp-CodeCell", has=self.page.locator(".cm-content", has_text=text)
        ).first
        found.scroll_into_view_if_needed()
        return found

    def write(self, text: str, source: str) -> None:
        """Replace the source of the cell that holds `text`, and run it."""
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Shift+Enter")
        self.idle()

    def run(self, text: str) -> Locator:
        """Run the cell that holds `text`; gives its output."""
        cell = self.cell(text)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.idle()
        return cell.locator(".jp-OutputArea")

    def picture(self, name: str, what: Locator | None = None) -> Path:
        """A screenshot under build/screenshots/."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        if what is None:
            self.page.screenshot(path=path)
        else:
            what.scroll_into_view_if_needed()
            self.page.mouse.move(0, 0)  # no row is lit up by a pointer
            what.screenshot(path=path)
        return path


def open_notebook(page: Page, address: str, name: str) -> Notebook:
    """Open a notebook by its file name, alone: `reset` forgets what an earlier page had open."""
    page.goto(address.replace("/lab?", f"/lab/tree/notebooks/{name}?reset&"))
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible()
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
    return Notebook(page)
