"""Answers and cells that use too much: time, memory, processes, threads, files, output.

What ends the attack without walls: 60 seconds, 6 GiB, 300 forks, 1,000 threads, 1 GiB of files, 20 MB a line.
"""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from attacks.attack import SIGNATURE, Attack, answer, body, cell, changed

SPIN = """
import time
until = time.monotonic() + 60
while time.monotonic() < until:
    pass
won("a minute")
"""
STUBBORN = """
import signal, time
signal.setitimer(signal.ITIMER_REAL, 0)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        while time.monotonic() < until:
            pass
    except BaseException:
        continue
won("a minute")
"""
CATCHES = """
import time
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        time.sleep(0.1)
    except (KeyboardInterrupt, BaseException):
        continue
won("a minute")
"""
SLEEP = """
import time
time.sleep(60)
won("a minute")
"""
MEMORY = """
kept = []
for _ in range(96):
    kept.append(bytearray(b"x") * (64 * 2**20))
won("6 GiB")
"""
MANY_HEAPS = """
import time
children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        heap = bytearray(b"x") * (768 * 2**20)
        time.sleep(2)
        os._exit(0)
    children.append(pid)
ends = [os.waitpid(pid, 0)[1] for pid in children]
if not any(ends):
    won("6 GiB in eight processes")
"""
SHARED = """
import mmap
kept = []
for _ in range(96):
    kept.append(mmap.mmap(-1, 64 * 2**20))
    kept[-1].write(b"x" * (64 * 2**20))
won("6 GiB shared")
"""
MEMORY_FILES = """
data, written, kept = bytes(2**20), 0, []
for folder in ("memfd", "/dev/shm", "/tmp", os.path.expanduser("~")):
    for number in range(100):
        try:
            path = os.path.join(folder, f"bomb-{number}")
            file = os.memfd_create("bomb") if folder == "memfd" else os.open(path, os.O_CREAT | os.O_WRONLY)
            kept.append(file)
            for _ in range(15):
                if written > 6000:
                    won("6 GiB of files")
                written += os.write(file, data) >> 20
        except OSError:
            break
if written > 3000:
    won(f"{written} MiB of files")
"""
FORKS = """
import signal, time
children = []
try:
    for _ in range(300):
        pid = os.fork()
        if pid == 0:
            time.sleep(2)
            os._exit(0)
        children.append(pid)
except OSError:
    pass
time.sleep(0.2)
if len(children) == 300:
    won("300 processes")
return 0.0, 0.0, 0.0
"""
CHAIN = """
import time
for _ in range(300):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0) if _ == 0 else time.sleep(3)
        break
else:
    open(PLACES["outside"], "w").write("300 generations")
    os._exit(0)
if _:
    os._exit(0)
return 0.0, 0.0, 0.0
"""
THREADS = """
import threading, time
started = 0
try:
    for _ in range(1000):
        threading.Thread(target=time.sleep, args=(4,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
time.sleep(1.5)
if started == 1000:
    won("1,000 threads")
return 0.0, 0.0, 0.0
"""
ONE_FILE = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open(os.path.join(os.path.expanduser("~"), "bomb"), "wb", buffering=0) as file:
    for _ in range(1024):
        if file.write(bytes(2**20)) < 2**20:
            raise OSError("full")
won("1 GiB in one file")
"""
EMPTY_FILES = """
for number in range(20_000):
    try:
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        return 0.0, 0.0, 0.0
won("twenty thousand files")
"""
MANY_FILES = """
home = os.path.expanduser("~")
for number in range(200_000):
    with open(os.path.join(home, f"bomb-{number}"), "wb") as file:
        file.write(bytes(4096))
won("200,000 files")
"""
DESCRIPTORS = """
kept = []
for _ in range(20_000):
    kept.append(os.dup(0) if kept else os.open("/dev/null", 0))
won("20,000 open files")
"""
LINE = 'print("x" * 20_000_000)\nreturn 0.0, 0.0, 0.0'
LINES = 'import sys\nfor n in range(1_000_000):\n    sys.stdout.write("line\\n")\nreturn 0.0, 0.0, 0.0'
BEHIND = "for n in range(200):\n    os.write(1, bytes(2**20))\n    os.write(2, bytes(2**20))\nreturn 0.0, 0.0, 0.0"
MESSAGE = 'raise ValueError("x" * 20_000_000)'
NAME = 'raise type("X" * 1_000_000, (Exception,), {})("\\ud800" * 1_000_000)'
DISPLAYED = """\
from IPython.display import HTML, display

for number in range(1_000_000):
    display(HTML("<p>bomb"))
"""
PICTURES = """\
import base64

from IPython.display import display

data = base64.b64encode(bytes(20_000_000)).decode()
for _ in range(10):
    display({"image/png": data, "text/html": data}, raw=True)
"""
COLOURS = """\
from IPython.display import display

for _ in range(40):
    display({"text/plain": "\\x1b[38;2;255;255;255;48;2;255;255;255;1;3;4m" + "a\\x1b[1m" * 998}, raw=True)
"""


def _swelling(notebook: NotebookNode) -> None:
    """What takes 105 MB of HTML: colours of one character each, and sources of &."""
    notebook.cells += [new_code_cell(source) for source in [COLOURS] * 25 + [f"#{'&' * 199_000}"] * 10]


def patient(name: str, lines: str) -> Attack:
    """The lines in an answer that has 10 seconds, so that memory ends before time does."""
    return answer(name, f"def hvp(f, x, v):\n{_indent(lines)}\n", exercise="hvp", costly=True)


def _while_loading(lines: str) -> str:
    return f"def bomb():\n{_indent(lines)}\n\n\nBOMB = bomb()\n\n\n{SIGNATURE}    return BOMB\n"


def _indent(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.strip().split("\n"))


ATTACKS = [
    body("loop", SPIN),
    body("loop_that_catches_everything", STUBBORN, costly=True),
    body("sleep_that_catches_everything", CATCHES, costly=True),
    body("sleep", SLEEP, costly=True),
    answer("loop_while_loading", _while_loading(STUBBORN), costly=True),
    cell("loop_in_the_display", STUBBORN, costly=True, heavy=True),
    patient("memory", MEMORY),
    patient("memory_of_many_processes", MANY_HEAPS),
    patient("shared_memory", SHARED),
    patient("files_in_memory", MEMORY_FILES),
    answer("memory_while_loading", _while_loading(MEMORY)),
    cell("memory_in_the_display", MEMORY),
    body("forks", FORKS),
    body("forks_of_forks", CHAIN, costly=True),
    body("threads", THREADS),
    cell("forks_in_the_display", FORKS.replace("return 0.0, 0.0, 0.0", "")),
    body("one_large_file", ONE_FILE),
    body("many_files", MANY_FILES, costly=True),
    body("many_empty_files", EMPTY_FILES),
    body("open_files", DESCRIPTORS),
    body("one_line_of_20_mb", LINE),
    body("a_million_lines", LINES, costly=True),
    body("output_behind_python", BEHIND),
    body("a_message_of_20_mb", MESSAGE),
    body("an_exception_with_a_long_name", NAME),
    cell("one_line_of_20_mb_in_the_display", 'print("x" * 20_000_000)\n'),
    cell("a_million_lines_in_the_display", "for number in range(1_000_000):\n    print(number)\n"),
    cell("a_million_outputs", DISPLAYED, costly=True),
    cell("pictures_of_20_mb", PICTURES),
    changed("a_page_of_105_mb", _swelling, display=True, costly=True),
]
