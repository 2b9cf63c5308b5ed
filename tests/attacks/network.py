"""Answers that talk to the outside: the test listens on each of these and must hear nothing."""

from __future__ import annotations

from attacks.attack import SIGNATURE, Attack, answer, cell

CALLS = {
    "tcp": 'socket.create_connection(("127.0.0.1", PLACES["port"]), timeout=1).sendall(b"attack")',
    "udp": 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"attack", ("127.0.0.1", PLACES["port"]))',
    "unix_socket": '_unix(PLACES["unix"])',
    "abstract_socket": '_unix("\\0" + PLACES["abstract"])',
    "web": "urllib.request.urlopen(f\"http://127.0.0.1:{PLACES['port']}/\", timeout=1)",
    "shell": 'subprocess.run(["bash", "-c", f"echo attack > /dev/tcp/127.0.0.1/{PLACES[\'port\']}"], timeout=2)',
}

HEAD = """\
import socket
import subprocess
import urllib.request


def _unix(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(1)
        sock.connect(path)
        sock.sendall(b"attack")


"""


def _attack(name: str, call: str) -> Attack:
    source = f"{HEAD}{SIGNATURE}    {call}\n    return 0.0, 0.0, 0.0\n"
    return answer(name, source, bites=name != "web")


LISTEN = """\
import socket
import time


def listen():
    # One run waits for the next: both bind, neither may meet the other.
    for address in (("127.0.0.1", 45_454), "\\0hpml-attack-meets-attack"):
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                sock.bind(address)
            except OSError:
                won("somebody listens already")


"""

ATTACKS = [
    *(_attack(name, call) for name, call in CALLS.items()),
    answer("meet_the_next_student", f"{LISTEN}{SIGNATURE}    listen()\n    return 0.0, 0.0, 0.0\n", times=2),
    cell("tcp_from_the_display", f"import socket\n\n{CALLS['tcp']}\n"),
    cell("abstract_socket_from_the_display", f"{HEAD}{CALLS['abstract_socket']}\n"),
]
