"""Answers that write to the sockets they inherited, as if they were the process that replies."""

from __future__ import annotations

from attacks.attack import RIGHT, SIGNATURE, Attack, answer

SOCKETS = """\
import json
import stat
import struct
import sys
import time


def sockets():
    numbers = []
    for number in range(1024):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode) or stat.S_ISFIFO(os.fstat(number).st_mode):
                numbers.append(number)
        except OSError:
            pass
    return numbers


def say(data):
    for number in sockets():
        try:
            os.set_blocking(number, False)
            os.write(number, data)
        except OSError:
            pass


def sized(data):
    return len(data).to_bytes(8, "big") + data


def token():
    # The grader's question carries a token that its answer must repeat: it lies in the callers' variables.
    frame = sys._getframe()
    while frame is not None:
        if isinstance(frame.f_locals.get("token"), str):
            return frame.f_locals["token"]
        frame = frame.f_back
    return ""


def framed(tree, stored=b""):
    text = json.dumps([token(), tree]).encode()
    return sized(len(text).to_bytes(4, "big") + text + stored)


def tensors(header, content=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def tensor(dtype, shape, first, last):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def packed(thing):
    if isinstance(thing, dict):
        return {"$dict": {key: packed(value) for key, value in thing.items()}}
    return [packed(each) for each in thing] if isinstance(thing, list) else thing


def seen(**parts):
    honest = {"values": {"value": 1.0, "dx": 1.0, "dy": 1.0}, "ledger": {}, "error": None, "printed": ""}
    return packed({"seen": [{**honest, **parts}]})


"""

SEEN_TENSOR = "{'$dict': {'seen': [{'$dict': {'values': {'$dict': {'dx': {'$tensor': 'a'}}}}}]}}"
SAID = {
    "no_frame": "os.urandom(4096)",
    "text": "b'HTTP/1.1 200 OK\\r\\n\\r\\n' * 50",
    "half_a_length": "b'\\0\\0\\0'",
    "huge_length": "(2**40).to_bytes(8, 'big') + bytes(1000)",
    "negative_length": "b'\\xff' * 8 + bytes(1000)",
    "no_length": "bytes(8)",
    "promised_and_not_sent": "(10_000).to_bytes(8, 'big') + bytes(100)",
    "huge_text": "sized((2**32 - 1).to_bytes(4, 'big') + bytes(100))",
    "no_text": "sized(bytes(4))",
    "pickle": "sized(b'\\x80\\x04cos\\n_exit\\n(K\\x00tR.')",
    "single_bytes_of_control": "b'rlpdse' * 100",
    "huge_header": f"framed({SEEN_TENSOR}, struct.pack('<Q', 2**62) + bytes(100))",
    "negative_header": f"framed({SEEN_TENSOR}, struct.pack('<q', -1) + bytes(100))",
    "overlapping_tensors": (f"framed({SEEN_TENSOR}, tensors({{n: tensor('F32', [2], 0, 8) for n in 'ab'}}, bytes(8)))"),
    "tensors_beyond_the_end": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('F64', [2**40], 0, 2**43)}}, bytes(8)))",
    "negative_offsets": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('F32', [1], -4, 0)}}, bytes(4)))",
    "negative_shape": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('F32', [-1], 0, 4)}}, bytes(4)))",
    "shape_beyond_every_number": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('F32', [0, 2**62, 8], 0, 0)}}))",
    "a_bool_of_seven": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('BOOL', [4], 0, 4)}}, bytes([7] * 4)))",
    "an_unknown_dtype": f"framed({SEEN_TENSOR}, tensors({{'a': tensor('F4', [2], 0, 1)}}, bytes(1)))",
    "a_tensor_that_is_not_there": f"framed({SEEN_TENSOR})",
    "deep_json": "framed(eval('[' * 90 + ']' * 90))",
    "a_million_values": "framed([0] * 1_000_000)",
    "a_long_number": "framed(10**4200)",
    "not_a_number": "framed([float('nan')] * 3)",
    "no_answer": "framed([])",
    "another_type": "framed(packed({'points': 6, 'verdict': 'full marks'}))",
    "many_observations": "framed(packed({'seen': [{'values': {'dx': 1.0}}] * 1000}))",
    "invented_points": "framed(seen(points=6, verdict=6, held=True))",
    "values_that_are_none": "framed(seen(values=None, ledger=3))",
    "a_failure_of_odd_parts": "framed(seen(error={'type': {}, 'message': [1], 'where': {'a': None}, 'rank': 10**30}))",
    "text_of_a_script": "framed(seen(values={'<script>' * 100: '\\x1b\\ud800<script>'}, printed='\\0' * 9999))",
    "questions_unasked": "framed(packed({'ask': 'local_derivatives', 'arguments': 1})) * 100",
    "questions_that_are_none": "framed(packed({'ask': ['x'] * 1000, 'seen': 3}))",
    "the_next_answers_too": "framed(seen()) * 3",
    "a_flood": "framed(seen()) * 20_000",
}

DRIP = """\
    until = time.monotonic() + 60
    while time.monotonic() < until:
        say(b"\\0")
        time.sleep(0.1)
    won("a minute of drops")
"""

LATE = """\
    parent = os.getpid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        until = time.monotonic() + 20
        while os.getppid() == parent and time.monotonic() < until:
            time.sleep(0.01)
        for _ in range(40):
            say(framed(seen()))
            time.sleep(0.1)
        os._exit(0)
"""

SWALLOW = """\
    import socket

    def swallow(sock, count, flags=0, receive=socket.socket.recv):
        while receive(sock, count, flags):
            pass
        os._exit(0)

    socket.socket.recv = swallow
"""

PASSED = """\
    import array
    import socket

    for number in sockets():
        with socket.socket(fileno=os.dup(number)) as sock:
            try:
                sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 100))])
            except OSError:
                pass
"""


def _sent(name: str, data: str) -> Attack:
    source = f"{SOCKETS}{SIGNATURE}    say({data})\n    os._exit(0)\n"
    return answer(name, source)


ATTACKS = [
    *(_sent(name, data) for name, data in SAID.items()),
    answer("drop_by_drop", f"{SOCKETS}{SIGNATURE}{DRIP}"),
    answer("late_replies", f"{SOCKETS}{SIGNATURE}{LATE}    {RIGHT}\n"),
    answer("swallowed_requests", f"{SIGNATURE}{SWALLOW}    {RIGHT}\n"),
    answer("files_passed_on", f"{SOCKETS}{SIGNATURE}{PASSED}    return 0.0, 0.0, 0.0\n"),
    answer(
        "replies_before_the_questions",
        f"{SOCKETS}SAID = say(framed('loaded') + framed(seen()) * 20)\n\n\n{SIGNATURE}    return 0.5, 0.5, SAID\n",
    ),
]
