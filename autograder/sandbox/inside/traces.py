"""What an exercise can leave behind in its process: the next one is performed in another then.

    in the warm process: prepare()      in a fork: watch(), before = found(), an exercise, found() == before?

Seen are settings and random states of Python, NumPy, torch and the process; every binding in a module or class that
was there before, and every change of a dict that a module holds; and what Python audits: files, imports, threads,
hooks, the code of functions. What is put into another object is not seen: a line of the later exercise's own could
have put it there as well, so that nobody gains by it.
"""

from __future__ import annotations

import ctypes
import decimal
import gc
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch

from course.performing.perform import array_words

BUSY = ("sys", "warnings", "torch.utils._python_dispatch")  # changed and changed back by ourselves: see `_held`
CACHES = ("linecache.cache", "re._cache", "torch.jit._builtins._builtin_table")
# Audit events that change nothing, or that our own code raises in each exercise; all others count.
HARMLESS = ("exec", "compile", "builtins.id", "code.__new__", "object.__getattr__", "sys._getframe")
OURS = "ctypes."  # what hides the probe (course/apart.py)
WORD = ctypes.sizeof(ctypes.c_void_p)
VERSION = 3 * WORD  # bytes of a dict before its version, which is new after each change of any dict (PEP 509)
SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class _Versions:
    """The versions of many dicts, read at once and without a reference to any of them, which would copy their pages."""

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        self._dicts = dicts  # they must stay where they are
        places = np.array([id(each) + VERSION for each in dicts])
        first = int(places.min())
        words = (ctypes.c_uint64 * ((int(places.max()) - first) // WORD + 1)).from_address(first)
        self._memory, self._places = np.ctypeslib.as_array(words), (places - first) // WORD

    def read(self) -> bytes:
        """All of them, as they are now."""
        return bytes(self._memory[self._places])


_versions: list[_Versions] = []
_audited: list[str] = []


def prepare() -> None:
    """Look up what is there: modules, dicts in them, classes; and what a look imports. Once for all forks."""
    found()
    modules = {name: vars(each) for name, each in sys.modules.items() if isinstance(each, types.ModuleType)}
    for name in BUSY:
        del modules[name]
    values = [value for name, each in modules.items() for key, value in each.items() if f"{name}.{key}" not in CACHES]
    dicts = {id(each): each for each in values if type(each) in (dict, OrderedDict) and each is not sys.modules}
    _versions[:] = [_Versions([*modules.values(), *dicts.values(), *map(_members, _classes())])]


def watch() -> None:
    """Remember from here on whether Python audits something in this process; nobody can take the hook away."""

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if not (_audited or event in HARMLESS or event.startswith(OURS) or _watches(event, given)):
            _audited.append(event)

    sys.addaudithook(hook)


def found() -> tuple[object, ...]:
    """All that is looked at. Where nothing was prepared, or Python tells no versions, it never is the same twice."""
    audited = tuple(_audited)  # before we look
    versions = _versions[0].read() if _versions and tells_versions() else object()
    return (versions, *_of_torch(), *_of_python(), *_of_process(), audited)


def tells_versions() -> bool:
    """Whether the dicts of this Python have versions: up to 3.12."""
    tried: dict[str, bool] = {}
    versions = _Versions([tried])
    before = versions.read()
    tried["changed"] = True
    return versions.read() != before


def _watches(event: str, given: tuple[Any, ...]) -> bool:
    """Whether an object that is no module gets another class: so probes watch what an answer does with it."""
    return event == "object.__setattr__" and given[1] == "__class__" and not isinstance(given[0], types.ModuleType)


def _classes() -> set[type]:
    found, left = set[type](), [object]
    while left:
        new = set(type.__subclasses__(left.pop())) - found
        found |= new
        left += new
    return found


def _members(kind: type) -> dict[str, Any]:
    """The dict behind the view that `vars` gives."""
    (members,) = gc.get_referents(vars(kind))
    return cast(dict[str, Any], members)


# --- settings -----------------------------------------------------------------------------------------


def _of_torch() -> Iterator[object]:
    yield torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()
    yield torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()
    yield torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    yield torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    yield torch._C._get_mkldnn_enabled()
    yield torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    yield torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]
    yield float(torch.tensor(1e-310, dtype=torch.float64) * 1)  # 0 where such numbers are flushed
    yield repr(torch._tensor_str.PRINT_OPTS)
    yield torch.random.get_rng_state().numpy().tobytes()


def _of_python() -> Iterator[object]:
    yield [_held(name) for name in BUSY]
    yield random.getstate(), array_words()
    yield np.geterr(), np.get_printoptions()
    yield str(decimal.getcontext())
    yield gc.isenabled(), gc.get_threshold()
    yield sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()
    yield sys.gettrace(), sys.getprofile()
    yield [*map(id, warnings.filters)], [*map(id, sys.meta_path)], [*map(id, sys.path_hooks)], [*sys.path]
    yield len(sys.modules)


def _of_process() -> Iterator[object]:
    yield os.getcwd(), dict(os.environ)
    yield [signal.getsignal(each) for each in SIGNALS], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield signal.getitimer(signal.ITIMER_REAL)[1], signal.getitimer(signal.ITIMER_PROF)[1]
    yield threading.active_count(), threading.stack_size()


def _held(name: str) -> dict[str, int]:
    """What stands for the names of a module."""
    return {key: id(value) for key, value in vars(sys.modules[name]).items()}
