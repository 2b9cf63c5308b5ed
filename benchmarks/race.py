"""How many frames a second the race of optimizers shows while it plays, in JupyterLab in headless Chromium.

    python benchmarks/race.py [--repeats 3]

The page itself looks at each of its animation frames where the heads of the paths are, and counts how often they
moved, from the first move after "play" to the last.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import ROOT, machine, table
from playwright.sync_api import Locator, expect
from rich.console import Console

sys.path.insert(0, str(ROOT))
from tests.browser.lab import browser_page, open_notebook, server, write_notebook

COUNT = """svg => {
    const heads = [...svg.querySelectorAll('.head')], seen = {frames: 0, first: 0, last: 0};
    const places = () => heads.map(each => getComputedStyle(each).translate).join();
    let before = places();
    const look = now => {
        const here = places();
        if (here !== before) {
            before = here;
            seen.frames += 1;
            seen.first = seen.first || now;
            seen.last = now;
        }
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    window.race_seen = seen;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="how often it is played")
    given = parser.parse_args()
    console = Console(width=110)
    console.print(f"{machine()}; load {os.getloadavg()[0]:.1f} at the start")
    made = table(
        "the race of optimizers while it plays", "time", "frames shown", "frames a second", caption="wanted: 20"
    )
    with tempfile.TemporaryDirectory(prefix="hpml-benchmark-") as folder:
        played = play(Path(folder) / "lab", given.repeats)
    for number, (frames, rate) in enumerate(played, 1):
        made.add_row(str(number), str(frames), f"{rate:.1f}")
    made.add_row("median", "", f"{statistics.median(rate for _, rate in played):.1f}")
    console.print(made)


def play(folder: Path, repeats: int) -> list[tuple[int, float]]:
    """Frames shown, and frames a second, of each time."""
    with browser_page() as page, server(folder) as address:
        write_notebook(folder, "race.ipynb", "from course.lessons.widgets.race import race\n\nrace()")
        notebook = open_notebook(page, address, "race.ipynb")
        notebook.run_all()
        widget = notebook.cell("race()").locator(".jp-OutputArea").first
        return [_played(widget) for _ in range(repeats)]


def _played(widget: Locator) -> tuple[int, float]:
    step = widget.locator(".race-step .noUi-handle")
    expect(step).to_have_attribute("aria-valuenow", "150.0")
    picture = widget.locator("svg.race")
    picture.evaluate(COUNT)
    widget.locator(".widget-play button").first.click()  # begins again at 0
    expect(step).not_to_have_attribute("aria-valuenow", "150.0")
    expect(step).to_have_attribute("aria-valuenow", "150.0")
    seen = picture.evaluate("svg => window.race_seen")
    return seen["frames"], 1000 * (seen["frames"] - 1) / (seen["last"] - seen["first"])


if __name__ == "__main__":
    main()
