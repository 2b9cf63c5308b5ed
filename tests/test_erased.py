"""What is removed is gone as machine code too: whoever puts back what stood in memory still finds nothing that runs."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys

import pytest
from conftest import soak

from autograder import bank as banks
from autograder import edits, recording
from autograder.engine.grade import COUNTED_OUTSIDE
from autograder.sandbox import open_runner
from autograder.sandbox.inside.removed import erased
from course import exercises
from course.judging.judge import judge
from course.performing.cells import CodeCell, Parsed
from course.performing.exercise import Observation

pytestmark = pytest.mark.skipif(
    platform.machine() != erased.PROCESSOR, reason=f"needs a processor of {erased.PROCESSOR}"
)

# Torch puts its own kernels back when the last reference to the library that replaced them goes.
UNDO = """\
import ctypes, re
def undone():
    import torch
    new, libc = torch._C._dispatch_library("IMPL", "aten", "", "", 0), ctypes.CDLL(None, use_errno=True)
    held_once = b"\\x01" + b"\\0{7}" + re.escape(id(type(new)).to_bytes(8, "little"))
    for page in range((id(new) & -4096) - 2**30, id(new) + 2**30, 4096):
        libc.access(ctypes.c_void_p(page), 0)
        if ctypes.get_errno() != 14:  # EFAULT: nothing lies there
            for found in re.finditer(held_once, (ctypes.c_char * 4096).from_address(page)):
                if page + found.start() != id(new):
                    ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(page + found.start()))
    return torch
torch = undone()
def gradients(y, leaves, dy=None):
    run = torch.autograd.Variable._execution_engine.run_backward
    return run((y,), (dy if dy is not None else torch.ones_like(y),), False, False, tuple(leaves), True)
"""
ATTACKS = {
    "linear_vjp": """\
def linear_vjp(dout, x, w):
    leaves = [each.detach().requires_grad_() for each in (x, w, torch.zeros_like(w[:, 0]))]
    return gradients(torch.nn.functional.linear(*leaves), leaves, dout)
""",
    "unbroadcast": """\
def unbroadcast(grad, shape):
    operand = torch.zeros(shape, dtype=grad.dtype, requires_grad=True)
    return gradients(operand.expand(grad.shape), [operand], grad.clone())[0]
""",
    "softmax_cross_entropy": """\
def softmax_cross_entropy(logits, targets):
    logits = logits.detach().requires_grad_()
    loss = torch._C._nn.cross_entropy_loss(logits, targets, None, 1, -100, 0.0)
    return loss.detach(), *gradients(loss, [logits])
""",
    "SaveLess": """\
class SaveLess(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch._C._nn.silu(x)
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = torch._C._nn.silu(x)
        return torch.autograd.grad(y, x, dy, create_graph=torch.is_grad_enabled())[0]
""",
}
FIRST, *OTHERS = ATTACKS


@pytest.fixture(scope="module")
def sandbox():
    with open_runner(display=False) as opened:
        yield opened


def performed(opened, name: str, source: str) -> tuple[tuple[Observation, ...], int]:
    """What is seen of an answer, and the points that it earns."""
    bank = banks.load(name)
    exercise, cases = bank.exercise, bank.exercise.draw(5)
    with opened.session([CodeCell(source=source, answers=exercise.name)]) as session:
        seen = session.perform(exercise, cases)
    verdict = judge(exercise, cases, seen, recording.references(bank, cases), sources=COUNTED_OUTSIDE)
    return seen, verdict.points


@pytest.mark.sandbox
@pytest.mark.parametrize("name", [FIRST, *map(soak, OTHERS)])
def test_who_undoes_a_removal_in_memory_earns_nothing(sandbox, name):
    seen, points = performed(sandbox, name, UNDO + ATTACKS[name])
    assert points == 0
    assert {each.error.type for each in seen if each.error} == {"ProcessDied"}


ORDINARY = {
    "linear_vjp": "def linear_vjp(dout, x, w):\n    return torch.autograd.grad(x, [x, w])",
    "unbroadcast": "def unbroadcast(grad, shape):\n    return grad.sum_to_size(shape)",
    "softmax_cross_entropy": "def softmax_cross_entropy(x, t):\n    return torch._C._nn.cross_entropy_loss(x, t), x",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ORDINARY)
def test_who_does_not_is_told_what_may_not_be_used(sandbox, name):
    seen, _ = performed(sandbox, name, f"import torch\n{ORDINARY[name]}")
    assert {each.error.type for each in seen if each.error} == {"RemovedError"}


LIBRARY = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.mmap.restype = ctypes.c_void_p\n"
CODE = "ctypes.cast(libc.getpid, ctypes.c_void_p).value & -4096"
CALLS = {
    "code in new memory": "libc.mmap(None, 4096, 7, 0x22, -1, 0) % 2**64",
    "code of a file": "libc.mmap(None, 4096, 5, 2, os.open(os.__file__, os.O_RDONLY), 0) % 2**64",
    "memory that becomes code": f"libc.mprotect(ctypes.c_void_p({CODE}), 4096, 7)",
    "memory that becomes code, by key": f"libc.syscall(329, ctypes.c_void_p({CODE}), 4096, 5, 0)",
    "the file's page again": f"libc.madvise(ctypes.c_void_p({CODE}), 4096, 4)",
    "the file's page again, locked": f"libc.madvise(ctypes.c_void_p({CODE}), 4096, 24)",
    "the file's page again, by a guard": f"libc.madvise(ctypes.c_void_p({CODE}), 4096, 102)",
    "the file's page again, in 33 bits": f"libc.syscall(28, ctypes.c_void_p({CODE}), 4096, ctypes.c_ulong(2**32 + 4))",
    "the file's next page": f"libc.mremap(ctypes.c_void_p({CODE}), 4096, 8192, 1)",
    "one's own way out of a trap": "libc.sigaction(5, ctypes.create_string_buffer(256), None)",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("attempt", CALLS)
def test_no_machine_code_comes_back(sandbox, attempt):
    source = (
        f"import os\n{LIBRARY}def linear_vjp(dout, x, w):\n    raise KeyError({CALLS[attempt]}, ctypes.get_errno())"
    )
    seen, _ = performed(sandbox, "linear_vjp", source)
    assert seen[0].error.message in ("(-1, 1)", f"({2**64 - 1}, 1)")


@pytest.mark.sandbox
def test_a_library_that_the_answer_names_is_loaded_before(sandbox):
    right = edits.cell("linear_vjp", banks.load("linear_vjp").reference)
    source = f"from _lsprof import Profiler\nimport xml.parsers.expat as e\nUSED = (Profiler, e)\nimport torch\n{right}"
    source = source.replace("    return ", "    assert USED\n    return ", 1)
    assert performed(sandbox, "linear_vjp", source)[1] == exercises.load("linear_vjp").points


@pytest.mark.sandbox
def test_half_precision_needs_no_code_that_is_made_on_the_way(sandbox):
    source = """\
import torch
def linear_vjp(dout, x, w):
    big = torch.ones(64, 64, dtype=torch.bfloat16)
    raise KeyError(int((big @ big)[0, 0]), len(torch.conv1d(big, big[:, :, None])))
"""
    seen, _ = performed(sandbox, "linear_vjp", source)
    assert seen[0].error.message == "(64, 64)"


@pytest.mark.sandbox
@pytest.mark.parametrize("folder", ["/student", "/tmp", "/dev/shm"])
def test_no_file_of_a_submission_is_executed(sandbox, folder):
    source = (
        f"import ctypes, _ctypes, shutil\nNEW = shutil.copy(_ctypes.__file__, {folder + '/new.so'!r})\n"
        "def running_mean(*_):\n    ctypes.CDLL(NEW)"
    )
    seen, _ = performed(sandbox, "running_mean", source)
    assert "failed to map segment" in seen[0].error.message


def test_without_walls_nothing_is_erased():
    body = f"raise KeyError(libc.mprotect(ctypes.c_void_p({CODE}), 4096, 5))"
    with open_runner(display=False, trusted=True) as opened:
        seen, _ = performed(opened, "linear_vjp", f"{LIBRARY}def linear_vjp(dout, x, w):\n    {body}")
    assert seen[0].error.message == "0"


# --- where the code lies ---


def test_every_pattern_finds_code_of_torch():
    assert [name for name in erased.CODE if not erased.code_of(name)] == []


def test_code_that_others_are_called_as_well_stays():
    assert not set(erased.code_of("torch.nn.functional.silu")) & set(erased.code_of("torch.optim"))


@pytest.fixture
def looked_up_again():
    """What is known of libraries is forgotten before and after."""
    erased._found.clear()
    yield
    erased._found.clear()


@pytest.mark.usefixtures("looked_up_again")
def test_another_processor_has_nothing_to_erase(monkeypatch):
    monkeypatch.setattr(erased.platform, "machine", lambda: "aarch64")
    assert {erased.code_of(name) for name in erased.CODE} == {()}


@pytest.mark.usefixtures("looked_up_again")
def test_a_library_without_a_table_of_symbols_has_nothing_to_erase(monkeypatch):
    monkeypatch.setattr(erased, "SYMTAB", 99)
    assert {erased.code_of(name) for name in erased.CODE} == {()}


IN_ANOTHER_PROCESS = """\
import ctypes, torch
from autograder.sandbox.inside.removed import erased
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
kept = LIBC.mmap(None, 4096, 7, 0x22, -1, 0)  # as of a library that compiles as it goes
assert any(first <= kept < first + length for first, length in erased.writable_code())
erased.erase(erased.code_of("torch.nn.functional.silu"))
erased.writable_code.cache_clear()
print(erased.writable_code(), torch.sigmoid(torch.zeros(2)).tolist(), flush=True)
torch.nn.functional.silu(torch.zeros(2))
"""


def test_who_gets_to_erased_code_dies_and_no_memory_stays_writable_and_executable():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("() [0.5, 0.5]", -signal.SIGTRAP), done.stderr


def test_what_an_answer_imports_is_found_wherever_it_does():
    source = "import a.b\nfrom c import d\nfrom . import e\ndef f():\n    import g\n    return a, d, e\nimport h"
    assert Parsed([CodeCell(source=source, answers="f")]).imports("f") == {"a.b", "c", "c.d", "g"}
