"""What every test gets: a user's data directory of its own, and no network beyond this machine."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import socket
import sys
import threading
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch
import unsynced  # noqa: F401
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from autograder.engine import pool
from autograder.sandbox import open_runner
from course.cluster.processes.launch import PRELOADED
from course.judging.sheet import Record
from course.performing.exercise import Observation
from course.tree import Leaf
from tools import system

LOCAL = ("127.", "::1", "localhost")

# nbgrader starts `alembic` by its bare name.
os.environ["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))

# Python's search for reference cycles begins when all is imported: meanwhile it would take a quarter of the time.
gc.disable()

# Several test processes share the cores: threads of one that wait for a core cost more than they bring.
torch.set_num_threads(1)

# No deadline: the first example imports half of torch. Examples are few, because there are many properties.
settings.register_profile("course", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("course")


# Every process runs some of the tests of these.
SPREAD = ("test_every_exercise.py", "test_brokered_verdicts.py", "test_other_processors.py")

# Only these tests are traced where coverage is taken: tracing the others would slow down all that they load and run.
JUDGING = ("test_apart", "test_judge", "test_perform", "test_sheet")


def pytest_collection_modifyitems(config, items):
    """The slow ones first: begun last, one of them would keep a single process busy at the end. What every process runs
    some of comes last, so that all are busy until then.
    """
    _leave_out_soak(config, items)
    _skip_what_this_machine_lacks(items)
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path.name in SPREAD))


@contextlib.contextmanager
def untraced():
    """Coverage looks away. pytest-cov's own `no_cover` does nothing in a process of xdist: coverage is started twice
    there and paused once.
    """
    threads, here = threading.gettrace(), sys.gettrace()
    threading.settrace(None)
    sys.settrace(None)
    try:
        yield
    finally:
        threading.settrace(threads)
        sys.settrace(here)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What judges is imported above."""
    with untraced():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fixtures too."""
    with contextlib.nullcontext() if item.path.name.startswith(JUDGING) else untraced():
        return (yield)


class FilesTogether(LoadScopeScheduling):
    """Gives a file or a folder below `tests/` to one process, which makes what its tests share once; the longest
    files to all of them.
    """

    def _split_scope(self, nodeid):
        file = Path(nodeid.split("::")[0])
        if file.name in SPREAD:
            return nodeid
        return str(file if file.parent.name == "tests" else file.parent)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """For `--dist loadscope`, as the Makefile has it."""
    return FilesTogether(config, log) if config.getvalue("dist") == "loadscope" else None


def _leave_out_soak(config, items):
    """A release's tests run only where `-m` names them."""
    if "soak" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def _skip_what_this_machine_lacks(items):
    """One reason for each marker, which a test carries, or asks for by a fixture of that name."""
    for marker in system.MARKERS:
        for item in items:
            if marker in item.fixturenames:
                item.add_marker(marker)
        marked = [item for item in items if item.get_closest_marker(marker)]
        needs = system.missing([marker]) if marked else []
        for item in marked if needs else []:
            item.add_marker(pytest.mark.skip(reason=system.sentence(needs)))


def pytest_collection_finish():
    """Python's search for reference cycles leaves out what is imported: on a busy machine that takes seconds, which
    are missing where an answer has two for all.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    """The user's data directory, empty; nobody's own progress is touched."""
    home = tmp_path / "data-home"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """A connection to another machine is an error."""
    connect = socket.socket.connect

    def guarded(self, address):
        if isinstance(address, tuple) and not str(address[0]).startswith(LOCAL):
            raise RuntimeError(f"a test must not use the network, but connects to {address[0]}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def soak(*values):
    """A row of a table of which a cheaper row stays in `make test`."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.fixture(scope="session")
def warm():
    """One warm process without walls, for all tests that grade what does no harm."""
    with open_runner(trusted=True) as plain:
        yield plain


@pytest.fixture(scope="session")
def walled():
    """The grader's sandbox, for all tests that ask what it says of an answer; it draws no displays."""
    with open_runner(display=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def fork_server():
    """The standard library's fork server, which has imported for all tests what a judge, a batch and a rank need.

    One that ranks have started before knows nothing of judges, and would have every fork import it.
    """
    forkserver._forkserver._stop()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autograder.nbgrader_bridge", *PRELOADED])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context


@pytest.fixture
def forked_judges(fork_server, monkeypatch):
    """Processes of the pool are forks of that server: to spawn each takes seconds, and is the same for the pool."""
    monkeypatch.setattr(pool, "get_context", lambda method: fork_server)


def same_leaf(a: Leaf, b: Leaf) -> bool:
    """Equal in type, dtype, shape and bits (nan equals nan)."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and a.contiguous().reshape(-1).view(torch.uint8).equal(
            b.contiguous().reshape(-1).view(torch.uint8)
        )
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def same_tree(a: object, b: object) -> bool:
    """The same lists, dicts and leaves."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_tree(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same_tree, a, b))
    if isinstance(a, Observation) and isinstance(b, Observation):
        parts = ("values", "ledger", "sources")
        return a.error == b.error and all(same_tree(getattr(a, each), getattr(b, each)) for each in parts)
    return same_leaf(a, b)


def same_record(a: Record, b: Record) -> bool:
    """The same cases, references and suspects; what an answer printed is not part of a sheet."""
    cases = same_tree(*[[[case.inputs, case.hidden] for case in each.cases] for each in (a, b)])
    names = [case.name for case in a.cases] == [case.name for case in b.cases]
    return names and cases and same_tree(a.references, b.references) and _same_suspects(a.suspects, b.suspects)


def _same_suspects(a, b) -> bool:
    words = [[(each.name, each.hint, each.fails, each.same_as) for each in row] for row in (a, b)]
    pairs = [(x, y) for one, two in zip(a, b, strict=True) for x, y in zip(one.witnesses, two.witnesses, strict=True)]
    return words[0] == words[1] and all(
        same_tree(x.observations, y.observations) and (x.free, x.sensitivity) == (y.free, y.sensitivity)
        for x, y in pairs
    )
