"""Starting JupyterLab on the first notebook, without the news pop-up.

Settings are given to this one process through JupyterLab's own configuration: nothing is written into the user's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from course.errors import CourseError

START = "00_start_here.ipynb"
OVERRIDES = {
    # Cells out of sight stay in the page: a long lesson with widgets does not jump while it is scrolled.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "defer"},
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": False,
    },
}


def notebooks_folder(start: Path) -> Path:
    """The folder that holds the notebooks: `start/notebooks`, or `start` itself in a student bundle."""
    for folder in (start / "notebooks", start):
        if (folder / START).is_file():
            return folder
    raise CourseError(
        f"`course lab` must be started where the notebooks lie, but there is no notebooks/{START} in {start}; "
        "change to the course's folder first"
    )


def run(arguments: Sequence[str]) -> int:
    """Start JupyterLab and wait until it ends; returns its exit code."""
    folder = notebooks_folder(Path.cwd())
    with tempfile.TemporaryDirectory(prefix="hpml-lab-") as settings:
        command = [sys.executable, "-m", "jupyterlab", f"--config={_configuration(Path(settings))}"]
        command += [f"--ServerApp.root_dir={folder.parent}", f"--LabApp.default_url=/lab/tree/{folder.name}/{START}"]
        command += ["--allow-root"] if _is_root() else []
        return _wait(subprocess.Popen([*command, *arguments]))


def _is_root() -> bool:
    """Whether this is a container's only user, to whom Jupyter says no unless asked twice."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the server; a signal that ends us ends it too."""
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # Jupyter got the same interrupt, and asks whether to stop
            continue


def _configuration(folder: Path) -> Path:
    """A configuration file that points JupyterLab to our settings overrides."""
    (folder / "overrides.json").write_text(json.dumps(OVERRIDES))
    file = folder / "jupyter_lab_config.json"
    file.write_text(json.dumps({"LabApp": {"app_settings_dir": str(folder)}, "LabServerApp": {"news_url": None}}))
    return file
