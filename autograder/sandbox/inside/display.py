"""The display run: the student's cells as people shall see them. Runs isolated; nothing it shows changes a score.

    warm process --warm_up, fork--> sources --each--> outputs, one list per code cell, in nbformat's form

A shell of IPython without a kernel runs the cells in order, and goes on after an exception. No cell gets more than a
share of the time and of the bytes. Whatever a student's code does to the shell, it does to its own display.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from IPython.core.ultratb import VerboseTB
from traitlets import Type
from traitlets.config import Config

from autograder.sandbox.inside import needed
from autograder.sandbox.inside.cell_outputs import CellOutputs, Stream
from autograder.sandbox.inside.needed import IMPORTS, LEFT, SHOWN
from autograder.sandbox.wire.messages import Output
from course.errors import CourseError
from course.performing.perform import TimeLimit

SHARE = 8  # a cell may use one part in so many of the time and of the bytes
AGAIN = 1.0  # seconds until a cell that goes on is interrupted once more
INLINE = "module://matplotlib_inline.backend_inline"
IMPORTED = (  # what lessons import
    *(
        "course.lessons.figures.charts",
        "course.lessons.figures.graph",
        "course.lessons.figures.replay",
        "course.lessons.widgets.stepper",
    ),
    *("course.meter", "course.lessons.data", "matplotlib.pyplot"),
)
WITH_OUTPUT_WIDGETS = ("ipywidgets.widgets.interaction", "ipywidgets.widgets.widget_output")


class NoKeyboard(CourseError):
    """A cell asks for something to be typed."""


def each(sources: Sequence[str], *, own: Sequence[bool] = (), seconds: float, limit: int) -> Iterator[list[Output]]:
    """What each of the code cells `sources` shows, when it has run. For one call in a process of its own.

    own      which cells are the student's; if given, other cells show nothing but an exception, and only those are run
             that the student's need (see `needed`)
    seconds  wall clock, for all cells together; a call into C is not interrupted: it must be ended from outside
    limit    bytes of JSON, for all cells together; exceptions are shown in any case
    """
    shell = _Shell.started()
    entered, room = time.monotonic(), limit
    for source, part in zip(sources, needed.parts(sources, own) if own else [SHOWN] * len(sources), strict=True):
        shell.outputs = outputs = CellOutputs(min(limit // SHARE, room))
        left = entered + seconds - time.monotonic()
        if part == LEFT:
            shell.execution_count += bool(source.strip())
        elif left > 0:
            shell.show(part == SHOWN)
            _run_cell(shell, needed.imports_of(source) if part == IMPORTS else source, min(seconds / SHARE, left))
        else:
            outputs.write("stderr", f"[not run: all cells together must end within {seconds:g} s]\n")
        yield outputs.finish() if part == SHOWN else _errors(outputs)
        room -= outputs.used if part == SHOWN else 0


def _errors(outputs: CellOutputs) -> list[Output]:
    return [output for output in outputs.finish() if output["output_type"] == "error"]


def _run_cell(shell: _Shell, source: str, seconds: float) -> None:
    """Run one cell; it is interrupted after `seconds`, and then every second until it gives up."""

    def ring(signum: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not InteractiveShell.run_cell.__code__:
            frame = frame.f_back
        if frame is not None:  # else the cell has just ended, and this is our own code
            raise TimeLimit(f"a cell must end within {seconds:.1f} s")

    outputs = shell.outputs
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        shell.run_cell(source, store_history=True)  # type: ignore[no-untyped-call]
    except BaseException as error:  # the shell shows what a cell raises: this came while it did so, or broke it
        outputs.error(type(error).__name__, *_told(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# --- the shell --------------------------------------------------------------------------------------


class _Result(DisplayHook):
    """Adds the value of a cell's last line to its outputs."""

    def quiet(self) -> bool:
        """Whether the value is not shown."""
        shell: Any = self.shell
        return not shell.shows or bool(super().quiet())  # type: ignore[no-untyped-call]

    def write_output_prompt(self) -> None:
        """Nothing: the number is part of the output."""

    def write_format_data(self, format_dict: Mapping[str, Any], md_dict: object = None) -> None:
        _outputs(self).show(format_dict, count=self.prompt_count)

    def log_output(self, format_dict: object) -> None:
        """Nothing: what was shown is kept once."""

    def finish_displayhook(self) -> None:
        self._is_active = False


class _Publisher(DisplayPublisher):
    """Adds what is displayed to the outputs of the cell."""

    def publish(
        self,
        data: Any,
        metadata: Any = None,
        source: Any = None,
        *,
        transient: Any = None,
        update: Any = False,
        **kwargs: Any,
    ) -> None:
        display_id = (transient or {}).get("display_id")
        if update:
            _outputs(self).update(data, display_id)
        else:
            _outputs(self).show(data, display_id=display_id)

    def clear_output(self, wait: bool = False) -> None:
        _outputs(self).clear(wait)


def _outputs(part: Any) -> CellOutputs:
    """Of the cell that runs now in the shell which owns `part`."""
    outputs: CellOutputs = part.shell.outputs
    return outputs


class _Shell(InteractiveShell):
    """IPython as in a notebook, without a kernel: everything that is shown goes to `outputs`."""

    displayhook_class = Type(_Result)
    display_pub_class = Type(_Publisher)
    outputs: CellOutputs
    shows = True  # whether what is displayed is drawn

    def show(self, shows: bool) -> None:
        """From now on draw what is displayed, or do not."""
        if shows != self.shows:
            formatter: Any = self.display_formatter
            everything = [formatter.ipython_display_formatter, formatter.mimebundle_formatter]
            for each in [*formatter.formatters.values(), *everything]:
                each.enabled = shows
            self.shows = shows

    @classmethod
    def started(cls) -> _Shell:
        """The shell of this process, with streams, inline figures and nobody at the keyboard."""
        config = Config()
        config.HistoryManager.enabled = False  # no database, and no thread that writes to it
        shell = cls.instance(config=config)
        shell.outputs = CellOutputs(0)
        sys.stdout = Stream("stdout", lambda *text: shell.outputs.write(*text))
        sys.stderr = Stream("stderr", lambda *text: shell.outputs.write(*text))
        sys.stdin, builtins.input = io.StringIO(), _nobody
        shell.enable_matplotlib("inline")  # type: ignore[no-untyped-call]
        formatter: Any = shell.display_formatter
        formatter.formatters["image/png"].for_type(importlib.import_module("matplotlib.figure").Figure, _image)
        return shell

    def enable_gui(self, gui: object = None) -> None:
        """Nothing: there is no window."""

    def ask_exit(self) -> None:
        """What `exit` and `quit` call."""
        self.outputs.write("stderr", "[exit: the later cells are run all the same]\n")

    def _tee(self, channel: object) -> Any:
        """Nothing more: IPython would keep a second copy of all that is printed, without an end."""
        return contextlib.nullcontext()

    def _format_exception_for_storage(self, *exception: object, **options: object) -> Any:
        """Nothing: IPython would format each traceback once more for its history."""
        return {}

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: Any) -> None:
        message, _ = _told(evalue)
        self.outputs.error(etype.__name__, message, [stb] if isinstance(stb, str) else list(stb))


def _told(error: BaseException) -> tuple[str, list[str]]:
    """The message of an exception, and a traceback that says no more: asking for it runs the student's own code."""
    try:
        message = str(error)
    except Exception:
        message = "<an exception whose message cannot be read>"
    return message, [f"{type(error).__name__}: {message}"]


def _image(figure: Any) -> Any:
    """PNG, cut to its content as in a notebook; drawn only once, and not cut, where a layout has filled the canvas."""
    if figure.get_layout_engine() is None:
        return print_figure(figure, bbox_inches="tight")  # type: ignore[no-untyped-call]
    stream = io.BytesIO()
    importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).print_png(stream)
    return stream.getvalue()


def _nobody(*prompt: object) -> NoReturn:
    raise NoKeyboard("input() needs somebody who types, but nobody does while a notebook is graded; assign the value")


# --- before the fork --------------------------------------------------------------------------------


def warm_up() -> None:
    """Import, draw and fail once, so that forks need not: 0.6 s. No student's code, no thread."""
    importlib.import_module("matplotlib").use(INLINE)
    modules = {name: importlib.import_module(name) for name in IMPORTED}
    for name in WITH_OUTPUT_WIDGETS:  # what such a widget holds stands in the cell, and would be cleared with it
        vars(importlib.import_module(name))["clear_output"] = lambda wait=False: None
    pyplot = modules["matplotlib.pyplot"]
    figure, axes = pyplot.subplots(1, 2, layout="constrained")
    axes[0].semilogy([1, 10], label="label")
    axes[0].legend()
    figure.colorbar(axes[1].imshow([[0.0, 1.0]]), ax=axes)
    _image(figure)
    pyplot.close(figure)
    try:
        raise NoKeyboard("no cell")
    except NoKeyboard:
        VerboseTB().structured_traceback(*sys.exc_info())
