"""What is sent between the grader and the process that runs a student's code: each message as a tree, and back.

    grader                                                       inside
    from_sources       --send-->                                 to_sources          the cells, once
    from_cases         --send, a token-->                        to_cases
    to_question        <--the same token--                       from_question       any number of times
    to_observations    <--the same token--                       from_observations
    to_outputs         <--                                       from_outputs        of a display run, cell by cell

Never pickle. What comes from inside is trusted in nothing: each `to_` function accepts only what its message may hold,
and makes text printable. A ledger entry that arrives here is `claimed`, whatever the sender says, because it was
counted in the student's process. Long text travels as bytes, because a frame's JSON is kept small.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from autograder.sandbox.wire.frame import DTYPES, MAX_NUMBER, BadFrame
from course.failing import MAX_WHERE
from course.performing.exercise import Case, Failure, Observation
from course.performing.perform import MAX_PRINTED
from course.tree import MAX_LEAVES, MAX_TEXT, Leaf, Tree, map_leaves

Output: TypeAlias = dict[str, Any]  # one output of a cell, as nbformat 4 has it

# Single bytes to a container's first process and its reader, with a socket beside them where one is handed over.
READ, PERFORM, WITHOUT_AUTOGRAD, DISPLAY, SWEEP, CLEAN, OVER, READY = b"l", b"p", b"w", b"d", b"s", b"c", b"o", b"r"
LONGEST = 2**16  # bytes of a control message to the warm process, which is JSON

LONG_TEXT = 1_000  # characters
MAX_SHOWN = 2 * 2**20  # bytes of one text of a display run, twice what a cell has; Python keeps four for each
MAX_MESSAGE, MAX_LINE = 2_000, 600  # characters of a failure's message, and of each of its own lines
MAX_RANK = 2**20
MAX_MODULES = 100
MODULE = re.compile(r"\w{1,100}(\.\w{1,100})*", re.ASCII)
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
VERB = re.compile(r"[A-Za-z_]{1,64}", re.ASCII)


# --- sources ------------------------------------------------------------------------------------------


def from_sources(sources: Sequence[str]) -> Tree:
    """Sources of cells as a tree; long ones travel as bytes, because text is capped much lower."""
    return [_as_bytes(source) for source in sources]


def to_sources(tree: Any) -> list[str]:
    """The sources back again; the sender is trusted."""
    return [leaf if isinstance(leaf, str) else leaf.numpy().tobytes().decode() for leaf in tree]


def _as_bytes(leaf: Leaf) -> Leaf:
    if isinstance(leaf, str) and len(leaf) > LONG_TEXT:
        return torch.frombuffer(bytearray(leaf.encode("utf-8", "replace")), dtype=torch.uint8)
    return leaf


# --- cases and questions ------------------------------------------------------------------------------


def from_cases(cases: Sequence[Case]) -> Tree:
    """Cases as a tree: inputs and how they lie in memory; nothing that is hidden, nor what a case is about."""
    return [{"inputs": dict(case.inputs), "lies": dict(case.lies)} for case in cases]


def to_cases(tree: Any) -> list[Case]:
    """The cases back again; the sender is trusted."""
    return [Case(name="", inputs=case["inputs"], lies=case["lies"]) for case in tree]


def from_question(verb: str, arguments: Tree) -> Tree:
    """A question to the grader as a tree."""
    return {"ask": verb, "arguments": arguments}


def to_question(tree: Tree) -> tuple[str, Tree]:
    """Verb and arguments of a question from a sender who is not trusted. Raises BadFrame.

    The verb has at most 64 ASCII letters and underscores; the arguments are any tree, its text made clean.
    """
    if not isinstance(tree, dict) or tree.keys() != {"ask", "arguments"}:
        raise BadFrame("a question must hold a verb, its arguments and nothing else")
    verb = tree["ask"]
    if not isinstance(verb, str) or not VERB.fullmatch(verb):
        raise BadFrame("the verb of a question must be at most 64 letters and underscores")
    return verb, clean(tree["arguments"], clean_leaf)


def clean(tree: Tree, leaf: Callable[[Leaf], Leaf]) -> Any:
    """The same tree with clean keys, and `leaf` put on every leaf."""
    if isinstance(tree, dict):
        return {clean_text(key): clean(value, leaf) for key, value in tree.items()}
    if isinstance(tree, list):
        return [clean(value, leaf) for value in tree]
    return leaf(tree)


def clean_leaf(leaf: Leaf) -> Leaf:
    """The same leaf, text made clean."""
    return clean_text(leaf) if isinstance(leaf, str) else leaf


# --- observations -------------------------------------------------------------------------------------


def from_observations(seen: Sequence[Observation]) -> Tree:
    """Observations as a tree; a leaf that no frame carries becomes a string that says so."""
    return [_packed(each) for each in seen]


def _packed(seen: Observation) -> Tree:
    error = dataclasses.asdict(seen.error) if seen.error else None
    if error:
        error["where"] = list(error["where"])
    values, ledger = carried(dict(seen.values)), carried(dict(seen.ledger))
    return {"values": values, "ledger": ledger, "error": error, "printed": seen.printed}


def carried(tree: Tree) -> Tree:
    """The same tree; a leaf that no frame carries becomes a string that says so."""
    return map_leaves(_carried, tree)


def _carried(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Tensor) and leaf.dtype not in DTYPES.values():
        return f"<tensor of {leaf.dtype}>"
    if isinstance(leaf, int) and leaf.bit_length() > 3 * MAX_NUMBER:  # 3 bits are less than a digit
        return f"<integer of {leaf.bit_length()} bits>"
    return leaf


def to_observations(tree: Tree, count: int) -> tuple[Observation, ...]:
    """`count` observations from a sender who is not trusted. Raises BadFrame."""
    if not isinstance(tree, list) or len(tree) != count:
        raise BadFrame(f"a reply must hold {count} observations")
    return tuple(_observation(each) for each in tree)


def _observation(tree: Tree) -> Observation:
    if not isinstance(tree, dict):
        raise BadFrame("an observation must be a dict")
    ledger = _leaves(tree.get("ledger"))
    return Observation(
        values=_leaves(tree.get("values")),
        ledger=ledger,
        sources=dict.fromkeys(ledger, "claimed"),
        error=to_failure(tree.get("error")),
        printed=_told(tree.get("printed"), MAX_PRINTED),
    )


def to_failure(tree: Tree) -> Failure | None:
    """A failure from a sender who is not trusted, or None. Raises BadFrame."""
    if tree is None:
        return None
    if not isinstance(tree, dict):
        raise BadFrame("a failure must be a dict")
    where, rank = tree.get("where"), tree.get("rank")
    lines = where if isinstance(where, list) else []
    return Failure(
        type=_told(tree.get("type"), 100) or "Error",
        message=_told(tree.get("message"), MAX_MESSAGE),
        where=tuple(_told(line, MAX_LINE) for line in lines[-MAX_WHERE:]),
        rank=rank if type(rank) is int and 0 <= rank < MAX_RANK else None,
    )


def _leaves(tree: Tree) -> dict[str, Leaf]:
    if not isinstance(tree, dict) or len(tree) > MAX_LEAVES:
        raise BadFrame(f"values must be a dict of at most {MAX_LEAVES} leaves")
    leaves: dict[str, Leaf] = {}
    for key, value in tree.items():
        if isinstance(value, (list, dict)):
            raise BadFrame("a value must be a leaf")
        leaves[_told(key)] = _told(value) if isinstance(value, str) else value
    return leaves


def clean_text(value: object, limit: int = MAX_TEXT) -> str:
    """A string that every file and database can hold, and not a long one."""
    if not isinstance(value, str):
        return ""
    return value[:limit].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _told(value: object, limit: int = MAX_TEXT) -> str:
    """The same for people to read: without what moves a cursor, or turns the direction in which text is read."""
    return CONTROLS.sub("\ufffd", clean_text(value, limit))


def outermost(modules: Collection[str]) -> list[str]:
    """Those of these modules that lie in no other one."""
    return sorted(each for each in modules if each.rpartition(".")[0] not in modules)[:MAX_MODULES]


def to_modules(tree: Tree) -> tuple[str, ...]:
    """Names of modules, from a sender who is not trusted."""
    names = tree[:MAX_TEXT].split(" ") if isinstance(tree, str) else []
    return tuple(name for name in names if MODULE.fullmatch(name))[:MAX_MODULES]


# --- outputs of a display run -------------------------------------------------------------------------


def from_outputs(outputs: Sequence[Sequence[Output]]) -> Tree:
    """One list of outputs (plain JSON) per source as a tree; pictures and other long text travel as bytes."""
    return [[map_leaves(_as_bytes, output) for output in each] for each in outputs]


def to_outputs(tree: Tree, count: int) -> list[list[Output]]:
    """`count` lists of outputs from a sender who is not trusted: JSON with clean text and finite numbers.

    Raises BadFrame. What an output may show is not decided here.
    """
    if not isinstance(tree, list) or len(tree) != count:
        raise BadFrame(f"a display run must hold the outputs of {count} cells")
    if not all(isinstance(each, list) and all(isinstance(output, dict) for output in each) for each in tree):
        raise BadFrame("the outputs of a cell must be a list of dicts")
    outputs: list[list[Output]] = clean(tree, _json_leaf)
    return outputs


def _json_leaf(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Tensor):
        if leaf.dtype != torch.uint8 or leaf.dim() != 1:
            raise BadFrame("an output must hold no tensor but the bytes of a text")
        return clean_text(leaf[:MAX_SHOWN].numpy().tobytes().decode("utf-8", "replace"), MAX_SHOWN)
    if isinstance(leaf, float) and not math.isfinite(leaf):
        raise BadFrame("a number in an output must be finite")
    return clean_leaf(leaf)
