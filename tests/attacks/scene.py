"""The place where an attack happens: secrets to be found, ears that listen, files nobody may touch; and who is there.

Scene.prepare(folder) -> places     what an attacker knows
scene.traces(text)    -> sentences  what an attack did outside, or what of the secret stands in `text`
Machine.now()         -> processes, mounts, descriptors and temporary files, to be compared with those before
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import secrets
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attacks import lesson
from attacks.attack import Places

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 5.0  # seconds in which what was killed must be gone


class Ears:
    """Sockets on this machine that must hear nothing: TCP and UDP on loopback, a path, an abstract name."""

    def __init__(self, path: Path, abstract: str) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._unix, self._abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self._unix.bind(str(path))
        self._abstract.bind("\0" + abstract)
        for sock in (self._unix, self._abstract):
            sock.listen()
        self.all = {"TCP": self._tcp, "UDP": self._udp, "unix": self._unix, "abstract": self._abstract}
        for sock in self.all.values():
            sock.setblocking(False)

    def heard(self) -> list[str]:
        """The kinds of sockets that heard something since the last call."""
        return [kind for kind, sock in self.all.items() if _drain(sock)]

    def close(self) -> None:
        """Stop listening."""
        for sock in self.all.values():
            sock.close()


def _drain(sock: socket.socket) -> int:
    """How many calls or datagrams waited."""
    count = 0
    while True:
        try:
            if sock.type == socket.SOCK_DGRAM:
                sock.recv(2**16)
            else:
                sock.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@dataclass(kw_only=True)
class Scene:
    """`token` is the secret, `shout` what an attack calls out when it has won."""

    folder: Path
    places: Places
    ears: Ears
    token: str
    shout: str
    before: dict[Path, bytes] = field(default_factory=dict)

    @classmethod
    def prepare(cls, folder: Path, token: str) -> Scene:
        """A course folder with secrets in all that a student may not read."""
        shout = f"attack-won-{secrets.token_hex(8)}"
        abstract = f"hpml-{secrets.token_hex(8)}"
        (folder / "home").mkdir(parents=True)
        book, source = folder / "gradebook.db", folder / "source" / lesson.ASSIGNMENT / lesson.FILE
        other = folder / "submitted" / "other" / lesson.ASSIGNMENT / lesson.FILE
        for path in (source, other):
            path.parent.mkdir(parents=True)
            path.write_bytes(lesson.to_bytes(lesson.solved(quadratic_grads=f"SECRET = '{token}'")))
        with sqlite3.connect(book) as database:
            database.execute("create table grade (student text, points real)")
            database.execute("insert into grade values (?, 1.0)", (token,))
        database.close()
        ears = Ears(folder / "socket", abstract)
        places = Places(
            shout=shout[::-1],
            gradebook=str(book),
            solution=str(source),
            other=str(other),
            outside=str(folder / "outside"),
            home=str(folder / "home"),
            port=ears.port,
            unix=str(folder / "socket"),
            abstract=abstract,
            namespace=os.readlink("/proc/self/ns/pid"),
            pid=os.getpid(),
        )
        before = {path: path.read_bytes() for path in (book, source, other)}
        return cls(folder=folder, places=places, ears=ears, token=token, shout=shout, before=before)

    def traces(self, text: str) -> list[str]:
        """A sentence for each thing that should not be; what was changed is put back."""
        found = [f"the {kind} socket heard it" for kind in self.ears.heard()]
        outside, home = Path(self.places.outside), Path(self.places.home)
        found += ["it wrote the file outside"] * outside.exists()
        outside.unlink(missing_ok=True)
        left = sorted(path for path in home.rglob("*") if path.is_file())
        found += [f"it left {path.name} in a home" for path in left]
        for path in left:
            path.unlink()
        for path, data in self.before.items():
            if not path.exists() or path.read_bytes() != data:
                found.append(f"it changed {path.name}")
                path.write_bytes(data)
        found += ["what it handed in shows the secret"] * (self.token in text)
        found += [f"it called out: {text.split(self.shout)[1][:200]}"] if self.shout in text else []
        return found


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What could be left behind, counted."""

    processes: int
    mounts: int
    descriptors: int
    temporary: frozenset[str]

    @classmethod
    def now(cls) -> Machine:
        """Our descendants (orphans come to us), our mounts and open files, and what lies in the folder for such."""
        return cls(
            processes=len(_descendants()),
            mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
            descriptors=len(os.listdir("/proc/self/fd")),
            temporary=frozenset(_temporary()),
        )

    def left(self) -> str:
        """What there is more of than there was, a few seconds later; "" where nothing is."""
        after = _settled(lambda: Machine.now() if _same_or_fewer(self, Machine.now()) else None) or Machine.now()
        fields = [each.name for each in dataclasses.fields(self)]
        more = [name for name in fields if _more(getattr(self, name), getattr(after, name))]
        return ", ".join(f"{name}: {getattr(self, name)} before, {getattr(after, name)} after" for name in more)


def _more(before: object, after: object) -> bool:
    if isinstance(before, frozenset) and isinstance(after, frozenset):
        return bool(after - before)
    return isinstance(before, int) and isinstance(after, int) and after > before


def _same_or_fewer(before: Machine, after: Machine) -> bool:
    names = [each.name for each in dataclasses.fields(before)]
    return not any(_more(getattr(before, name), getattr(after, name)) for name in names)


def _settled(look: Callable[[], Machine | None]) -> Machine | None:
    """What `look` returns as soon as it returns something."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        seen = look()
        if seen is not None:
            return seen
        time.sleep(0.05)
    return None


def _temporary() -> list[str]:
    """What lies in the folder for temporary files, but for the cache that torch makes in the grader."""
    return [name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("torchinductor_")]


@contextlib.contextmanager
def adopted_orphans() -> Iterator[None]:
    """Meanwhile processes that detach themselves become our children, so that they can be counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _descendants() -> set[int]:
    """Numbers of the processes below us that run; what has ended and waits to be asked for is none."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if stat[0] not in "ZX":
                parents[int(name)] = int(stat[1])
    found: set[int] = set()
    below = {os.getpid()}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below} - found
        found |= below
    return found
