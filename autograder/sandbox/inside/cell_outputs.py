"""What one cell has shown so far: outputs in nbformat's form, capped while they are produced.

    print, display, the value of the last line, an exception --> CellOutputs --finish--> list of outputs

Everything is plain data that JSON can hold. It is not trusted: a student's code can reach it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autograder.sandbox.wire.messages import Output

KEPT = ("text/plain", "image/png")  # of any other form only the name is kept, so that a page can say what is missing
OVERHEAD = 100  # bytes of an output that holds nothing
MAX_FORMS = 10  # of one output
MAX_NAME = 100  # characters of a form's name or an exception's
MAX_ERRORS = 3  # of one cell; they are shown even where there is no more room
MAX_MESSAGE = 2_000  # characters
MAX_FRAME = 5_000  # characters of one frame of a traceback
MAX_TRACEBACK = 20_000  # characters


class CellOutputs:
    """The outputs of one cell, at most about `room` bytes of JSON, errors aside."""

    def __init__(self, room: int) -> None:
        self._all = self._room = room
        self._outputs: list[Output] = []
        self._by_id: dict[str, Output] = {}
        self._stream: io.StringIO | None = None  # of the last output, if more may be written to it
        self._cut = self._clear_first = False

    def write(self, name: str, text: str) -> None:
        """Text on "stdout" or "stderr"; what follows on the same stream is joined."""
        if not text or not self._has_room():
            return
        if self._stream is None or self._outputs[-1]["name"] != name:
            self._append({"output_type": "stream", "name": name, "text": ""})
            self._stream = io.StringIO()
        self._stream.write(self._fitting(text))

    def show(self, data: Mapping[Any, Any], *, count: int | None = None, display_id: object = None) -> None:
        """A display, or with a `count` the result of the cell. `data` is by MIME type; images may be bytes."""
        if not self._has_room():
            return
        output: Output = {"output_type": "display_data", "data": {}, "metadata": {}}
        if count is not None:
            output |= {"output_type": "execute_result", "execution_count": count}
        self._append(output)
        output["data"] = self._bundle(data)
        if isinstance(display_id, str):
            self._by_id[display_id] = output

    def update(self, data: Mapping[Any, Any], display_id: object) -> None:
        """Replaces what this cell displays under an id; nothing where there is no such display."""
        if isinstance(display_id, str) and display_id in self._by_id:
            self._by_id[display_id]["data"] = self._bundle(data)

    def error(self, kind: str, message: str, traceback: Sequence[str]) -> None:
        """An exception; of a long traceback the last frames."""
        self._clear_now()
        if sum(output["output_type"] == "error" for output in self._outputs) >= MAX_ERRORS:
            self._cut = True
            return
        frames = [frame[:MAX_FRAME] for frame in traceback]
        while sum(map(len, frames)) > MAX_TRACEBACK:
            del frames[0]
        named = {"ename": kind[:MAX_NAME], "evalue": message[:MAX_MESSAGE]}
        self._append({"output_type": "error", **named, "traceback": frames})

    def clear(self, wait: bool = False) -> None:
        """Forgets all outputs, and the room is free again; with `wait` not before the next one comes."""
        self._clear_first = wait
        if not wait:
            self._room, self._stream, self._cut = self._all, None, False
            self._outputs.clear()
            self._by_id.clear()

    @property
    def used(self) -> int:
        """Bytes that the outputs take."""
        return self._all - self._room

    def finish(self) -> list[Output]:
        """The outputs, and below them a remark where some were cut off."""
        self._close()
        if self._cut:
            remark = f"[output cut off after {self._all // 1000} kB]\n"
            self._outputs.append({"output_type": "stream", "name": "stderr", "text": remark})
        return self._outputs

    def _clear_now(self) -> None:
        """Before an output: clear the others, if that was to wait for one."""
        if self._clear_first:
            self.clear()

    def _has_room(self) -> bool:
        """Whether another output may come."""
        self._clear_now()
        self._cut |= self._room <= 0
        return self._room > 0

    def _append(self, output: Output) -> None:
        self._close()
        self._outputs.append(output)
        self._room -= OVERHEAD

    def _close(self) -> None:
        """Give the last stream its text."""
        if self._stream is not None:
            self._outputs[-1]["text"] = self._stream.getvalue()
            self._stream = None

    def _bundle(self, data: Mapping[Any, Any]) -> dict[str, str]:
        forms = [form for form in data if isinstance(form, str)][:MAX_FORMS]
        found = {form[:MAX_NAME]: self._form(form, data[form]) for form in forms}
        return {form: value for form, value in found.items() if value is not None}

    def _form(self, form: str, value: object) -> str | None:
        """What is kept of one form; None where it has no room or is none."""
        if form not in KEPT:
            return ""
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        if not isinstance(value, str):
            return None
        if form == "image/png" and len(value) > self._room:
            self._cut = True
            return None
        return self._fitting(value)

    def _fitting(self, text: str) -> str:
        """As much of `text` as there is room for in JSON; that room is gone."""
        room = max(0, self._room)
        piece = str.__getitem__(text, slice(room))
        while (cost := len(json.dumps(piece)) - 2) > room:
            piece = piece[: int(len(piece) * room / cost)]
        self._room = room - cost
        self._cut |= len(piece) < len(text)
        return piece


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a cell; it cannot be closed."""

    encoding = "utf-8"

    def __init__(self, name: str, write: Callable[[str, str], None]) -> None:
        self.name = f"<{name}>"
        self._to = name
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._write(self._to, text)
        return len(text)

    def close(self) -> None:
        """Nothing: the next print must not fail."""
