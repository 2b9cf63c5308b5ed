"""A real PostgreSQL on 127.0.0.1 with a bounded life: started for a test, stopped by its own process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools import system

LIFE_SECONDS = 300  # `timeout` ends the server then, even if nobody else does
START_SECONDS = 60
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # what is written lives as long as the test
    "max_connections": "20",
    "shared_buffers": "16MB",
}


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """Starts a server whose files lie in `folder`; gives a database's URL for SQLAlchemy."""
    where = system.postgres()
    if where is None:
        raise FileNotFoundError("initdb must be installed; on Debian: apt install postgresql")
    port = _free_port()
    _run_as_nobody([where / "initdb", "--auth=trust", "--username=course", "--no-sync", folder])
    options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            ["timeout", "--kill-after=10", str(LIFE_SECONDS), where / "postgres", "-D", folder, f"-p{port}", *options],
            stdout=log, stderr=log, **_identity(),
        )  # fmt: skip
    try:
        _wait_until_ready(process, port, folder / "server.log")
        yield f"postgresql+psycopg://course@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # `timeout` passes it on: end all connections, then stop
        process.wait(timeout=30)


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    """An empty folder for the server's files that its user owns; pytest's own folders are open to nobody else."""
    with tempfile.TemporaryDirectory(prefix="hpml-postgres-", dir=_open_to_all()) as top:
        folder = Path(top) / "data"
        folder.mkdir(mode=0o700)
        os.chmod(top, 0o711)
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
        yield folder


def _open_to_all() -> Path:
    """The first folder for temporary files that the server's user may enter: where TMPDIR points, or the system's."""
    names = [tempfile.gettempdir(), "/tmp", "/var/tmp"] if os.geteuid() == 0 else [tempfile.gettempdir()]
    for folder in [Path(name).resolve() for name in names]:
        if os.geteuid() != 0 or all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents)):
            return folder
    raise PermissionError(f"one of {', '.join(names)} must be open to the user nobody, who runs PostgreSQL for root")


def _identity() -> dict[str, object]:
    """PostgreSQL refuses to run as root: as root, it is started as nobody."""
    if os.geteuid() != 0:
        return {"start_new_session": True}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "start_new_session": True, "cwd": "/"}


def _run_as_nobody(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **_identity())
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if b"ready to accept connections" in log.read_bytes():
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL must start within {START_SECONDS} s, but: {log.read_text()}")
