"""Answers that look for what they may not know: solutions, gradebook, environment, others' work, memory of others.

What they find stands in the message of an exception, which the student would read in the feedback.
"""

from __future__ import annotations

from attacks.attack import RIGHT, SIGNATURE, answer, body
from autograder.sandbox.outside.stage import left_out

SECRET = "tok[e]n-[0-9a-f]{32}"  # never matches its own source

READ = f"""\
import re


def found(data):
    match = re.search(rb"{SECRET}", data)
    if match:
        raise LookupError(match[0].decode())


def read(path):
    try:
        with open(path, "rb") as file:
            found(file.read(2**22))
    except OSError:
        pass


"""

WALK = """\
import time


def search(top, seconds):
    until = time.monotonic() + seconds
    for folder, folders, files in os.walk(top):
        folders[:] = [each for each in folders if each not in ("site-packages", "lib", "share", "sys")]
        for name in files:
            if name.endswith((".ipynb", ".db", ".py", ".env", ".json", ".log", ".safetensors")):
                read(os.path.join(folder, name))
        if time.monotonic() > until:
            return


"""

FORBIDDEN = tuple(left_out())

OPEN_FOLDERS = """\
    for number in range(1024):
        try:
            top = os.open("../" * 20, os.O_RDONLY | os.O_DIRECTORY, dir_fd=number)
        except OSError:
            continue
        for path in (PLACES["gradebook"], PLACES["solution"]):
            try:
                found(os.read(os.open(path.lstrip("/"), os.O_RDONLY, dir_fd=top), 2**22))
            except OSError:
                pass
    return 0.0, 0.0, 0.0
"""

PROC = """\
    for pid in ("1", "self", str(os.getppid()), *(name for name in _list("/proc") if name.isdigit())):
        for name in ("environ", "cmdline", "maps"):
            read(f"/proc/{pid}/{name}")
        for path in (PLACES["gradebook"], PLACES["solution"], PLACES["other"]):
            read(f"/proc/{pid}/root{path}")
        for name in _list(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if target.startswith("/") and os.path.isfile(target):
                read(f"/proc/{pid}/fd/{name}")
    return 0.0, 0.0, 0.0
"""

LIST = """\
def _list(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


"""

MEMORY = """\
    pid = os.getppid()
    try:
        with open(f"/proc/{pid}/maps") as file:
            spans = [line.split()[0].split("-") for line in file if " rw-p " in line or "[heap]" in line]
        with open(f"/proc/{pid}/mem", "rb") as memory:
            for first, last in spans[:2]:
                memory.seek(int(first, 16))
                memory.read(min(int(last, 16) - int(first, 16), 2**16))
                won("the parent's memory")
    except OSError:
        pass
    return 0.0, 0.0, 0.0
"""

TRACE = """
import ctypes
import ctypes.util
libc = ctypes.CDLL(None, use_errno=True)
attach, detach = 16, 17
if libc.ptrace(attach, os.getppid(), None, None) == 0:
    os.waitpid(os.getppid(), 0x40000000)
    libc.ptrace(detach, os.getppid(), None, None)
    won("the parent was traced")
return 0.0, 0.0, 0.0
"""

COPY = """
import ctypes
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
taken = ctypes.create_string_buffer(64)
mine = Span(ctypes.addressof(taken), 64)
theirs = Span(id(PLACES), 64)
if libc.process_vm_readv(os.getppid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0:
    won("read the parent's memory")
return 0.0, 0.0, 0.0
"""

NAMESPACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x10020000):
    if libc.unshare(flag) == 0:
        won("new namespaces, with every capability in them")
return 0.0, 0.0, 0.0
"""

FRAMES = """
import gc, sys
frame, names = sys._getframe(), set()
while frame is not None:
    names |= set(frame.f_locals) & {"seed", "references", "suspects", "witnesses"}
    frame = frame.f_back
if names:
    won(sorted(names))
for thing in gc.get_objects():
    if type(thing) in (dict, list, tuple):
        for each in list(thing.values() if type(thing) is dict else thing):
            if type(each) in (str, bytes) and len(each) < 2**20:
                found(each.encode("utf-8", "replace") if type(each) is str else each)
return 0.0, 0.0, 0.0
"""


def _reads(place: str) -> str:
    return f"{READ}{SIGNATURE}    read(PLACES[{place!r}])\n    return 0.0, 0.0, 0.0\n"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.strip().split("\n")) + "\n"


ATTACKS = [
    answer("read_the_solutions", _reads("solution"), bites=True),
    answer("read_the_gradebook", _reads("gradebook"), bites=True),
    answer("read_another_submission", _reads("other"), bites=True),
    answer(
        "read_the_environment",
        READ
        + SIGNATURE
        + "    found(repr(dict(os.environ)).encode())\n"
        + "    for pid in ('self', os.getppid(), PLACES['pid']):\n"
        + "        read(f'/proc/{pid}/environ')\n"
        + "    return 0.0, 0.0, 0.0\n",
    ),
    answer("search_the_disk", READ + WALK + SIGNATURE + "    search('/', 3.0)\n    return 0.0, 0.0, 0.0\n"),
    answer("search_memory_and_frames", READ + SIGNATURE + _indented(FRAMES)),
    answer("search_proc", READ + LIST + SIGNATURE + PROC),
    answer("climb_out_of_open_folders", READ + SIGNATURE + OPEN_FOLDERS),
    answer("memory_of_the_parent", SIGNATURE + MEMORY),
    answer("trace_the_parent", SIGNATURE + _indented(TRACE)),
    answer("copy_from_the_parent", SIGNATURE + _indented(COPY)),
    answer("new_namespaces", SIGNATURE + _indented(NAMESPACE)),
    answer(
        "hand_in_the_reference",
        "from course.reference.computational_graphs.quadratic_grads import quadratic_grads as right\n\n\n"
        f"{SIGNATURE}    return right(a, b, c, x, y)\n",
    ),
    body(
        "import_what_judges",
        f"""
        import importlib
        for name in {FORBIDDEN}:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
            won(name)
        {RIGHT}
        """,
        earns=7,
    ),
]
