"""Answers and cells that hide from who counts what they use, or have names that are no text; all of them in vain."""

from __future__ import annotations

from attacks.attack import Attack, answer, body, cell

PRCTL = """
import ctypes
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SET_DUMPABLE, SET_NAME = 4, 15
"""
NO_TEXT = f"{PRCTL}LIBC.prctl(SET_NAME, bytes([255, 254]) + b') R 1 \\n1', 0, 0, 0)\ntime.sleep(0.3)\n"
ANOTHER_LINE = f"""{PRCTL}
import threading

threading.Thread(target=time.sleep, args=(0.5,)).start()
LIBC.prctl(SET_NAME, b"\\rVmRSS:", 0, 0, 0)
LIBC.syscall(60, 0)
"""  # exit of this thread alone, on x86-64: its process goes on, and its name looks like an amount of memory
HIDDEN = f"{PRCTL}LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)\ntime.sleep(0.2)\n"
SAVES_TOO_MUCH = """
import torch


class SaveLess(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s, s * 2, s * 3)
        return x * s

    @staticmethod
    def backward(ctx, dy):
        x, _, _, _ = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))
"""
ALL_CORES = f"""{PRCTL}
cores = os.sysconf("SC_NPROCESSORS_CONF")
mask = (ctypes.c_ulong * 16)(*[2**64 - 1] * 16)
if LIBC.sched_setaffinity(0, ctypes.sizeof(mask), mask) == 0:
    won("any core")
if LIBC.setpriority(0, 0, 0) == 0:
    won("a priority")
try:
    os.setsid()
    won("a session")
except PermissionError:
    pass
"""
PAGES = f"""{PRCTL}
import errno
import mmap


def held(what, call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return
    except OSError as error:
        won(f"{{what}}, and {{error}}")
    won(what)


def system_call(number, *arguments):
    if LIBC.syscall(number, *(*arguments, 0, 0, 0, 0, 0)[:5]) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        raise PermissionError
    raise OSError(ctypes.get_errno(), "the kernel's own answer")


with open(os.__file__, "rb") as file:
    held("a page that is dropped", os.posix_fadvise, file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    held("whether a page is there", os.preadv, file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
held("secret memory", system_call, 447)
held("the state of the cache", system_call, 451)
held("the table of mounts", system_call, 457)
held("a list of mounts", system_call, 458)
if os.uname().machine == "x86_64":
    held("which pages are there", system_call, 27)
    held("a context of the system's", system_call, 206)
    held("entries of epoll", system_call, 291)
    held("a filter of one's own", system_call, 157, 22, 2)
"""
# The machine's own devices, terminals and log; a process beside this one, in the same memory.
MACHINE = f"""{PRCTL}
import errno

for name in ("full", "null", "random", "tty", "urandom", "zero", "pts/ptmx"):
    for change in (lambda path: os.chmod(path, 0o666), lambda path: os.utime(path, ns=(1, 2))):
        try:
            change(f"/dev/{{name}}")
            won(name)
        except OSError:
            pass
for number, *arguments in ((157, 22, 2), (56, 0x100)) if os.uname().machine == "x86_64" else ():
    if LIBC.syscall(number, *(*arguments, 0, 0, 0, 0, 0)[:5]) >= 0 or ctypes.get_errno() != errno.EPERM:
        won(number)
"""

ATTACKS: list[Attack] = [
    body("a_name_that_is_no_text", NO_TEXT),
    cell("a_name_that_is_no_text_in_the_display", NO_TEXT),
    body("a_name_that_is_a_line_of_its_own", ANOTHER_LINE),
    cell("a_name_that_is_a_line_of_its_own_in_the_display", ANOTHER_LINE),
    answer("unreadable_while_it_is_measured", f"{HIDDEN}{SAVES_TOO_MUCH}", exercise="SaveLess", earns=10),
    body("a_larger_share_of_the_processors", ALL_CORES),
    body("what_of_a_file_lies_in_memory", PAGES),
    body("what_belongs_to_the_machine", MACHINE),
    cell("what_belongs_to_the_machine_in_the_display", MACHINE),
]
