"""The display run shows a notebook as JupyterLab would, and no cell takes it from the others."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograder.sandbox.inside.cell_outputs import MAX_ERRORS, MAX_TRACEBACK, CellOutputs, Stream

ROOT = Path(__file__).parents[1]

# First the number of its threads; then for each line, which asks for a run, what a fork of it shows.
SERVER = """
import json, os, sys, threading
from autograder.sandbox.inside import display
display.warm_up()
print(threading.active_count(), flush=True)
for line in sys.stdin:
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            shown = json.dumps(list(display.each(**json.loads(line))))
            with os.fdopen(write, "w") as pipe:
                pipe.write(shown)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print(pipe.read() or "null", flush=True)
    os.wait()
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A warm process, which reads and writes lines."""
    home = tmp_path_factory.mktemp("home")
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(home), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home,
        env=environment,
        text=True,
    ) as process:
        process.threads = int(process.stdout.readline())
        yield process
        process.stdin.close()


@pytest.fixture
def shown(warm):
    """A function: what each of these cells shows."""

    def ask(*sources: str, own: tuple[bool, ...] = (), seconds: float = 60.0, limit: int = 2**20):
        request = {"sources": sources, "own": own, "seconds": seconds, "limit": limit}
        print(json.dumps(request), file=warm.stdin, flush=True)
        cells = json.loads(warm.stdout.readline())
        made = [new_code_cell(outputs=[nbformat.from_dict(output) for output in cell]) for cell in cells]
        nbformat.validate(new_notebook(cells=made))
        return cells

    return ask


def text(cell) -> str:
    """All that the streams of a cell hold."""
    return "".join(output["text"] for output in cell if output["output_type"] == "stream")


def kinds(cell) -> list[str]:
    return [output["output_type"] for output in cell]


def is_png(output) -> bool:
    return base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")


def test_a_warm_process_has_one_thread(warm):
    assert warm.threads == 1


def test_text_is_joined_by_stream_in_the_order_in_which_it_came(shown):
    (cell,) = shown("import sys\nprint(1)\nprint(2)\nprint(3, file=sys.stderr)\nprint(4)")
    assert [(output["name"], output["text"]) for output in cell] == [
        ("stdout", "1\n2\n"),
        ("stderr", "3\n"),
        ("stdout", "4\n"),
    ]


def test_the_value_of_the_last_line_is_a_result_with_its_number(shown):
    _, second, third, fourth = shown("1", "6 * 7", "_ + 1;", "_")
    assert second == [
        {"output_type": "execute_result", "data": {"text/plain": "42"}, "metadata": {}, "execution_count": 2}
    ]
    assert third == []
    assert fourth[0]["data"] == {"text/plain": "42"}


def test_an_exception_is_shown_as_a_kernel_shows_it_and_later_cells_run(shown):
    first, second = shown("def f():\n    return 1 / 0\nf()", "f.__name__")
    assert kinds(first) == ["error"]
    assert (first[0]["ename"], first[0]["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert "\x1b[" in first[0]["traceback"][0]
    assert "In[1]" in "".join(first[0]["traceback"])
    assert second[0]["data"] == {"text/plain": "'f'"}


def test_a_figure_is_shown_once_at_the_end_of_its_cell(shown):
    (cell,) = shown("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')")
    assert kinds(cell) == ["stream", "display_data"]
    assert is_png(cell[1])


@pytest.mark.parametrize("layout", ["None", "'constrained'"])
def test_nothing_of_a_figure_is_cut_off(shown, layout):
    source = (
        f"import matplotlib.pyplot as plt\nplt.subplots(figsize=(2, 2), layout={layout})[1].set_ylabel('y\\ny\\ny')"
    )
    (cell,) = shown(source + ";")
    data = base64.b64decode(cell[-1]["data"]["image/png"])
    width = int.from_bytes(data[16:20], "big")
    assert width == 200 if layout != "None" else width > 200


def test_a_picture_of_the_course_is_the_result_of_its_cell(shown):
    (cell,) = shown(
        "from course.lessons.figures.charts import saved_bytes_bars\nsaved_bytes_bars({'relu': 8}, 'Saved')"
    )
    assert kinds(cell) == ["execute_result"]
    assert is_png(cell[0])


def test_magics_and_top_level_await_work(shown):
    first, second = shown("%%time\nx = 1", "import asyncio\nawait asyncio.sleep(0, result=3)")
    assert "Wall time" in text(first)
    assert second[0]["data"] == {"text/plain": "3"}


def test_of_other_forms_only_the_name_is_kept(shown):
    (cell,) = shown("from IPython.display import HTML\nHTML('<script>1</script>')")
    assert cell[0]["data"] == {"text/plain": "<IPython.core.display.HTML object>", "text/html": ""}


def test_interact_shows_what_its_function_shows_and_keeps_what_stood_there(shown):
    source = (
        "import ipywidgets\nprint('before')\n@ipywidgets.interact(x=3)\ndef f(x):\n    print('x is', x)\n    return x"
    )
    (cell,) = shown(source)
    assert text(cell) == "before\nx is 3\n"
    assert {"text/plain": "3"} in [output["data"] for output in cell if "data" in output]


def test_a_cleared_output_is_replaced_by_the_next(shown):
    source = "from IPython.display import clear_output\nfor i in range(3):\n    clear_output(wait=True)\n    print(i)"
    assert shown(source) == [[{"output_type": "stream", "name": "stdout", "text": "2\n"}]]


def test_a_display_with_an_id_is_updated_where_it_stands(shown):
    (cell,) = shown("shown = display('a', display_id=True)\nprint('between')\nshown.update('b')")
    assert kinds(cell) == ["display_data", "stream"]
    assert cell[0]["data"] == {"text/plain": "'b'"}


def test_asking_for_input_is_told_in_one_sentence(shown):
    (cell,) = shown("name = input('Your name? ')")
    (line,) = cell[0]["traceback"]
    assert line.startswith("NoKeyboard: input() needs somebody who types")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(: pass", "SyntaxError"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E"),
    ],
)
def test_whatever_a_cell_raises_is_an_output(shown, source, kind):
    first, second = shown(source, "print('still here')")
    assert [output["ename"] for output in first if output["output_type"] == "error"] == [kind]
    assert text(second) == "still here\n"


def test_exit_is_no_end(shown):
    first, second = shown("exit()", "print('still here')")
    assert "the later cells are run" in text(first)
    assert text(second) == "still here\n"


# --- what a student's code may do to its own display ------------------------------------------------------

BREAKERS = {
    "streams": "import sys\nsys.stdout = sys.stderr = None",
    "display hook": "import sys\nsys.displayhook = None",
    "publisher": "get_ipython().display_pub = None",
    "shell": "type(get_ipython()).run_cell = None",
    "traceback": "get_ipython()._showtraceback = None\n1 / 0",
    "screen": "get_ipython().screen = None\nprint(1)",
    "transformers": "get_ipython().input_transformers_post.append(1)",
    "events": "get_ipython().events.register('post_execute', lambda: 1 / 0)",
}


@pytest.mark.parametrize("what", BREAKERS)
def test_a_cell_that_breaks_its_shell_costs_its_own_display_only(shown, what):
    assert len(shown(BREAKERS[what], "print(2)", "1 / 0", "3")) == 4
    assert text(shown("print(1)")[0]) == "1\n"


@pytest.mark.parametrize("source", ["import os\nos._exit(0)", "import builtins\nbuiltins.isinstance = None"])
def test_a_cell_that_breaks_its_process_costs_that_process_only(warm, shown, source):
    print(json.dumps({"sources": [source], "seconds": 9, "limit": 999}), file=warm.stdin, flush=True)
    assert json.loads(warm.stdout.readline()) is None
    assert text(shown("print(1)")[0]) == "1\n"


# --- time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except Exception: pass",
        "class Slow:\n    def __repr__(self):\n        while True: pass\nSlow()",
    ],
)
def test_a_cell_that_does_not_end_is_interrupted_after_its_share(shown, source):
    first, second = shown(source, "print('still here')", seconds=2.0)
    assert [output["ename"] for output in first] == ["TimeLimit"]
    assert "must end within 0.2 s" in first[0]["evalue"]
    assert text(second) == "still here\n"


def test_a_cell_that_ignores_its_interruption_is_interrupted_again(shown):
    wait = "while True: sleep(0.01)"
    stubborn = f"from time import sleep\ntry:\n    {wait}\nexcept BaseException:\n    print('no')\n{wait}"
    first, second = shown(stubborn, "print('still here')", seconds=2.0)
    assert [output.get("ename") for output in first] == [None, "TimeLimit"]
    assert text(second) == "still here\n"


def test_a_figure_that_takes_too_long_is_interrupted_too(shown):
    figure = "class Slow(plt.Figure):\n    def draw(self, renderer):\n        while True: pass"
    source = f"import matplotlib.pyplot as plt\n{figure}\nplt.figure(FigureClass=Slow).add_subplot();"
    first, second = shown(source, "print('still here')", seconds=4.0)
    assert "TimeLimit" in [output.get("ename") for output in first]
    assert text(second) == "still here\n"


def test_a_cell_for_which_no_time_is_left_is_not_run(shown):
    (cell,) = shown("print('late')", seconds=0.0)
    assert text(cell) == "[not run: all cells together must end within 0 s]\n"


# --- bytes -------------------------------------------------------------------------------------------------

LIMIT = 80_000  # a cell may use 10 kB of it


@pytest.mark.parametrize(
    "source",
    [
        "print('x' * 20_000_000)",
        "for _ in range(1_000_000): print('x')",
        "import sys\nfor _ in range(100_000):\n    print('x'); print('y', file=sys.stderr)",
        "print('\\0' * 20_000_000)",
        "for _ in range(1_000): display('x' * 100)",
        "'x' * 20_000_000",
        "display({'image/png': 'x' * 100_000, 'text/plain': 'x'}, raw=True)",
    ],
    ids=["one line", "many lines", "two streams", "control characters", "displays", "a result", "a picture"],
)
def test_output_is_cut_off_while_it_is_produced(shown, source):
    first, second = shown(source, "print('still here')", limit=LIMIT)
    assert text(first).endswith("[output cut off after 10 kB]\n")
    assert len(json.dumps(first)) < 1.2 * LIMIT / 8
    assert text(second) == "still here\n"


def test_all_cells_together_keep_the_limit(shown):
    cells = shown(*["print('x' * 20_000)"] * 12, limit=LIMIT)
    assert len(json.dumps(cells)) < 1.1 * LIMIT
    assert text(cells[-1]) == "[output cut off after 0 kB]\n"


def test_an_exception_is_shown_where_there_is_no_more_room(shown):
    (cell,) = shown("print('x' * 20_000)\nraise ValueError('y' * 1_000_000)", limit=LIMIT)
    assert kinds(cell) == ["stream", "error", "stream"]
    assert sum(map(len, cell[1]["traceback"])) <= MAX_TRACEBACK


def test_memory_does_not_grow_with_what_is_printed(shown):
    source = "import resource\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    source += "for _ in range(200): print('x' * 1_000_000)\n"
    cells = shown(source, "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000", limit=LIMIT)
    assert cells[1][0]["data"] == {"text/plain": "True"}


# --- the screen alone -----------------------------------------------------------------------------------------


def test_a_screen_shows_so_many_exceptions_and_no_more():
    screen = CellOutputs(1_000)
    for _ in range(MAX_ERRORS + 1):
        screen.error("E", "", ["E"])
    assert kinds(screen.finish()) == ["error"] * MAX_ERRORS + ["stream"]


def test_a_picture_for_which_there_is_no_room_is_left_out_as_a_whole():
    screen = CellOutputs(1_000)
    screen.show({"image/png": bytes(5_000), "text/plain": "a picture"})
    shown, remark = screen.finish()
    assert shown["data"] == {"text/plain": "a picture"}
    assert "cut off" in remark["text"]


def test_a_cleared_screen_has_its_room_again():
    screen = CellOutputs(1_000)
    for _ in range(10):
        screen.clear(wait=True)
        screen.write("stdout", "x" * 800)
    assert text(screen.finish()) == "x" * 800


def test_a_stream_takes_text_only_and_survives_being_closed():
    screen = CellOutputs(1_000)
    stream = Stream("stdout", screen.write)
    with pytest.raises(TypeError, match="must be str, not bytes"):
        stream.write(b"x")
    stream.close()
    print("x", file=stream)
    assert text(screen.finish()) == "x\n"


# --- only what the student's cells need -----------------------------------------------------------------


def test_cells_that_nobody_needs_are_left_out_and_the_students_are_numbered_as_if_they_had_run(shown):
    cells = "left = 1\nprint(left)", "", "needed = 2\nneeded", "needed", "1 / 0"
    sliced = shown(*cells, own=(False, False, False, True, True))
    assert sliced[:3] == [[], [], []]
    assert sliced[3:] == shown(*cells)[3:]
    assert sliced[3][0]["execution_count"] == 3


def test_what_is_needed_is_run_without_drawing(shown):
    drawn = """
class Counted:
    count = 0
    def _repr_png_(self):
        Counted.count += 1
    def _ipython_display_(self):
        Counted.count += 1
from IPython.display import display
display(Counted())
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
figure.canvas.draw = lambda *given: 1 / 0
plt.show()
Counted()
"""
    quiet, own = shown(drawn, "print(Counted.count, plt.get_fignums())\nCounted.count", own=(False, True))
    assert quiet == []
    assert text(own) == "0 []\n"
    assert own[1]["data"] == {"text/plain": "0"}


def test_a_needed_cell_that_raises_says_so(shown):
    assert [kinds(cell) for cell in shown("a = 1 / 0", "print(2)\na", own=(False, True))] == [
        ["error"],
        ["stream", "error"],
    ]


def test_a_cell_whose_imports_alone_are_needed_runs_no_more(shown):
    first, second = shown("import math\n1 / 0", "math.tau", own=(False, True))
    assert (first, kinds(second)) == ([], ["execute_result"])
