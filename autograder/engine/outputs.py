"""What a display run showed, made harmless for the pages on which other people open it. Trusted code, untrusted data.

    whatever came back --safe--> for each code cell outputs of nbformat 4: text and PNG pictures, nothing else

Feedback pages put HTML, SVG, JavaScript and widgets into the page as they are, so none of these is passed on; text is
escaped there. Colours are kept in one strict form: nbconvert fails as a whole on some others, such as ESC[38m.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import re
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from autograder.sandbox import Output

Outputs = tuple[tuple[Output, ...], ...]  # of a notebook, by code cell

OUTPUTS = 40  # of one cell
TEXT = 20_000  # characters of one text, of a traceback the last ones
LINES, LOOKED_AT = 1_000, 2 * TEXT  # entries of a traceback, and characters of it, before folders are left out
COLOURS = 1_000  # changes of colour in one text; with more it is shown without colours
ENAME, EVALUE = 100, 1_000  # characters
PNG = 2**20  # bytes of one picture
PIXELS, SIDE = 8_000_000, 10_000  # of one picture: a browser needs 4 bytes for each
ALL_PIXELS = 64_000_000  # of all pictures together: a black one of 8 million takes 1,000 bytes
TOTAL = 4 * 2**20  # characters of HTML, all cells together: a page has colours of code and sources besides
COLOURED = 120  # characters of HTML that begin and end the longest colour

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")  # what a picture is made of; others only describe it
WIDGET = "application/vnd.jupyter.widget-view+json"
FORMS = {
    "text/html": "HTML",
    "text/markdown": "Markdown",
    "text/latex": "LaTeX",
    "image/svg+xml": "SVG",
    "image/jpeg": "JPEG",
    "application/javascript": "JavaScript",
}

_FOLDERS = {*map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), str(Path(__file__).parents[2])}
_HERE = re.compile("|".join(re.escape(f"{folder}{os.sep}") for folder in sorted(_FOLDERS, key=len, reverse=True)))
_PARAMETER = r"(?:[34]8;5;\d{1,3}|[34]8;2;\d{1,3};\d{1,3};\d{1,3}|[349][0-7]|[34]9|10[0-7]|[02]?\d)"
_SPECIAL = re.compile(
    rf"(?P<colour>\x1b\[(?:{_PARAMETER}(?:;{_PARAMETER}){{0,7}})?m)"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles and links of terminals
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # all other sequences: cursor, screen, unknown colours
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"  # they reorder text, or are no characters
)


def safe(displayed: object, count: int) -> Outputs:
    """One tuple of harmless, valid outputs for each of `count` code cells. Never raises, whatever `displayed` holds.

    They are taken one by one, and of each only what is shown is kept: a few bytes may bring a hundred times as much.
    A run that ended too early is told below the first cell that it did not show.
    """
    shown, room, pixels = list[tuple[Output, ...]](), TOTAL, ALL_PIXELS
    for cell in itertools.islice(displayed if isinstance(displayed, Iterable) else (), count):
        shown.append(tuple(_cell(cell, room, pixels)))
        room -= sum(map(_size, shown[-1]))
        pixels -= sum(map(_pixels, shown[-1]))
    if len(shown) < count:
        shown.append((_remark("the run that shows this notebook ended here: it was stopped, or ended by itself"),))
    return (*shown, *((),) * (count - len(shown)))


def _cell(outputs: object, room: int, pixels: int) -> Iterator[Output]:
    if not isinstance(outputs, list):
        yield _remark("something that is no list of outputs was left out")
        return
    for output in outputs[:OUTPUTS]:
        clean = _output(output, pixels)
        room -= _size(clean)
        pixels -= _pixels(clean)
        if room < 0:
            yield _remark(f"left out: all outputs of a notebook may together hold {TOTAL >> 20} MiB")
            return
        yield clean
    if len(outputs) > OUTPUTS:
        yield _remark(f"{len(outputs) - OUTPUTS} more outputs of this cell were left out")


def _size(output: Output) -> int:
    """Bytes that it takes of a page, at most: JSON has as many quotes as tags take, and six characters for a letter."""
    written = json.dumps(output)
    return len(escape(written)) + COLOURED * written.count("\\u001b")


def _remark(sentence: str) -> Output:
    """What we say ourselves among a student's outputs."""
    return {"output_type": "stream", "name": "stderr", "text": f"[{sentence}]\n"}


def _output(output: object, pixels: int) -> Output:
    """One output, rebuilt from the parts that are known; its picture has no more pixels than there is room for."""
    if not isinstance(output, dict):
        return _remark("something that is no output was left out")
    kind, name = (value if isinstance(value, str) else "" for value in (output.get("output_type"), output.get("name")))
    if kind == "stream":
        name = name if name in ("stdout", "stderr") else "stdout"
        return {"output_type": "stream", "name": name, "text": _text(output.get("text"))}
    if kind == "error":
        return _error(output)
    if kind == "display_data":
        return {"output_type": "display_data", "data": _data(output.get("data"), pixels), "metadata": {}}
    if kind == "execute_result":
        data, number = _data(output.get("data"), pixels), _count(output.get("execution_count"))
        return {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number}
    return _remark("something that is no output was left out")


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**6 else None


def _error(output: dict[Any, Any]) -> Output:
    lines = output.get("traceback")
    texts = [line[-LOOKED_AT:] for line in lines[-LINES:] if isinstance(line, str)] if isinstance(lines, list) else []
    end = "\n".join(texts)[-LOOKED_AT:]  # much more is not even searched: that would cost several times what came
    return {
        "output_type": "error",
        "ename": _line(output.get("ename"), ENAME) or "Error",
        "evalue": _line(output.get("evalue"), EVALUE),
        "traceback": [_text(_HERE.sub("", end), last=True)],  # not where the grader keeps what is called
    }


# --- displays ---------------------------------------------------------------------------------------


def _data(bundle: object, pixels: int) -> dict[str, str]:
    """Text, a picture, or both; text always, and it says what is missing."""
    forms = bundle if isinstance(bundle, dict) else {}
    data = {"text/plain": _text(forms.get("text/plain"))}
    picture = _picture(forms.get("image/png"), pixels)
    if picture:
        data["image/png"] = picture
    elif WIDGET in forms:
        data["text/plain"] = "[a widget, which works only in a running notebook]"
    else:
        data["text/plain"] = "\n".join(filter(None, [data["text/plain"], _missing(forms)]))
    return data


def _missing(forms: dict[Any, Any]) -> str:
    """Which forms of a display are not shown; "" where its text is all there is."""
    others = [FORMS.get(form, "another form") for form in forms if form not in ("text/plain", "image/png")]
    if "image/png" in forms:
        one, together = f"{PIXELS // 10**6} megapixels", f"{ALL_PIXELS // 10**6} megapixels in a notebook"
        others.append(f"a picture that is no PNG of at most {PNG >> 20} MiB and {one} ({SIDE:,} a side, {together})")
    if not others and "text/plain" not in forms:
        others.append("an output without a form")
    return f"[not shown here: {', '.join(dict.fromkeys(others))}]" if others else ""


def _picture(value: object, pixels: int) -> str | None:
    """A PNG in base64; None where it is none, or too large."""
    if not isinstance(value, str) or len(value) > 2 * PNG:
        return None
    try:
        data = base64.b64decode(value.replace("\n", ""), validate=True)
    except ValueError:
        return None
    clean = _png(data, pixels) if len(data) <= PNG else None
    return base64.b64encode(clean).decode() if clean else None


def _png(data: bytes, pixels: int) -> bytes | None:
    """The picture without what only describes it; None where it is no sound PNG, or has too many pixels."""
    chunks = list(_chunks(data)) if data.startswith(SIGNATURE) else []
    kinds = [chunk[4:8] for chunk in chunks]
    if not chunks or kinds[0] != b"IHDR" or kinds[-1] != b"IEND" or b"IDAT" not in kinds or kinds.count(b"IHDR") > 1:
        return None
    width, height = _sides(data)
    if len(chunks[0]) != 25 or max(width, height) > SIDE or not 0 < width * height <= min(PIXELS, pixels):
        return None
    return SIGNATURE + b"".join(chunk for chunk in chunks if chunk[4:8] in CHUNKS)


def _sides(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG, which stand first in it."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _pixels(output: Output) -> int:
    """Of its picture; 0 where it has none."""
    return math.prod(_sides(base64.b64decode(output.get("data", {}).get("image/png", "")[:32])))


def _chunks(data: bytes) -> Iterator[bytes]:
    """The chunks after the signature, up to the end of the picture or the first that is not sound."""
    at = len(SIGNATURE)
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        chunk = data[at:end]
        if end > len(data) or zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
            return
        yield chunk
        if chunk[4:8] == b"IEND":
            return
        at = end


# --- text -------------------------------------------------------------------------------------------


def _text(value: object, *, last: bool = False) -> str:
    """At most `TEXT` characters, the first or the `last`, with colours and without other control characters."""
    if not isinstance(value, str):
        return ""
    part = value[-TEXT:] if last else value[:TEXT]
    clean = _SPECIAL.sub(_colour, _overwritten(part))
    if clean.count("\x1b") > COLOURS:
        clean = _SPECIAL.sub("", clean)
    if len(part) < len(value):
        remark = f"[{len(value) - TEXT} more characters were left out]"
        clean = f"{remark}\n{clean}" if last else f"{clean}\n{remark}\n"
    return clean.encode("utf-8", "replace").decode()  # no half of a surrogate pair


def _line(value: object, limit: int) -> str:
    """One short line without colours."""
    line = _SPECIAL.sub("", value[:limit]) if isinstance(value, str) else ""
    return " ".join(line.split()).encode("utf-8", "replace").decode()


def _colour(found: re.Match[str]) -> str:
    return found["colour"] or ""


def _overwritten(text: str) -> str:
    """Each line as a terminal shows it: a carriage return starts it anew, as progress bars do."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
