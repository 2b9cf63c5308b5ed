"""What a sandboxed rank says to the broker, as trees: its part of a case, its calls, and the replies.

    broker                            rank
    from_part       -->               to_part                          once
    to_said         <--               from_items, {"asks": n, ..}      any number of times
    {"takes": ..}   -->               only where the rank waits, or asks whether a call is done
    {"stopped": ..} -->               instead, where the run is over
    to_said         <--               {"seen": observation}            once; a "value" beside it, of no exercise

A rank's calls are numbered from 0 in the order in which they come; it waits for one by its number. What comes from a
rank is judged here: anything that no communicator of ours says is a BadFrame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from autograder.sandbox.wire import messages
from autograder.sandbox.wire.frame import DTYPES, MAX_FRAME, NAMES, BadFrame, can_be_sent
from course.cluster.calls import Call, Kind, check_form
from course.errors import BadArgument
from course.performing.exercise import Case, Observation
from course.tree import Tree, readable

MAX_ITEMS = 1_000  # in one message
MAX_LABEL = 100
MAX_WORD = 20  # characters of a verb, an op or a dtype


@dataclass(frozen=True, kw_only=True)
class RankCall:
    """To call a function on every rank: its name, the verbs that it may use, and its time limit."""

    function: str
    verbs: Sequence[str]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CallMessage:
    """A call with the tensors that it gives."""

    call: Call
    gives: tuple[Tensor, ...]
    is_async: bool


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A claim that the rank computed for so many virtual seconds."""

    seconds: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The rank waits for its call of this number.

    asks     it only wants to know whether the call is done; seconds: for a yes it waits so long, None: not at all
    """

    number: int
    asks: bool = False
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class RankEnded:
    """The rank has returned, or raised. value: what a function that belongs to no exercise returned."""

    seen: Observation
    value: Tree = None


Said: TypeAlias = CallMessage | Computed | Waits | RankEnded


def from_part(part: Case, rank: int, size: int) -> Tree:
    """A rank's part of a case."""
    return {"case": messages.from_cases([part]), "rank": rank, "size": size}


def to_part(tree: Any) -> tuple[Case, int, int]:
    """The part, the rank and how many there are; the sender is trusted."""
    (part,) = messages.to_cases(tree["case"])
    return part, tree["rank"], tree["size"]


def from_call(call: Call, gives: Sequence[Tensor], *, is_async: bool) -> Tree:
    """A call, and the tensors that it gives."""
    takes: list[Tree] = [[NAMES.get(kind.dtype, str(kind.dtype)), list(kind.shape)] for kind in call.takes]
    return {
        "verb": call.verb,
        "group": list(call.group),
        "peer": call.peer,
        "op": call.op,
        "context": call.context,
        "tag": call.tag,
        "async": is_async,
        "gives": [each.detach() for each in gives],
        "takes": takes,
    }


def to_said(tree: Tree, rank: int, size: int) -> list[Said]:
    """What a rank says. Raises BadFrame."""
    if not isinstance(tree, dict):
        raise BadFrame("a message of a rank must be a dict")
    if tree.keys() in ({"seen"}, {"seen", "value"}):
        value = messages.clean(tree.get("value"), messages.clean_leaf)
        return [RankEnded(seen=messages.to_observations(tree["seen"], 1)[0], value=value)]
    if tree.keys() == {"asks", "seconds"}:
        seconds = None if tree["seconds"] is None else _seconds(tree["seconds"])
        return [Waits(number=_whole(tree["asks"]), asks=True, seconds=seconds)]
    if tree.keys() != {"items", "waits"} or not isinstance(tree["items"], list) or len(tree["items"]) > MAX_ITEMS:
        raise BadFrame(f"a message of a rank must hold at most {MAX_ITEMS} calls, and what it waits for")
    said: list[Said] = [_item(item, rank, size) for item in tree["items"]]
    return said if tree["waits"] is None else [*said, Waits(number=_whole(tree["waits"]))]


def _item(tree: Tree, rank: int, size: int) -> CallMessage | Computed:
    if not isinstance(tree, dict):
        raise BadFrame("a call must be a dict")
    if tree.keys() == {"compute", "label"}:
        label = tree["label"]
        if not isinstance(label, str):
            raise BadFrame("the label of a time must be a text")
        return Computed(seconds=_seconds(tree["compute"]), label=readable(label[:MAX_LABEL]))
    if tree.keys() != {"verb", "group", "peer", "op", "context", "tag", "async", "gives", "takes"}:
        raise BadFrame("a call must hold its verb, group, peer, op, tag and tensors")
    gives = tree["gives"]
    if not isinstance(gives, list) or not all(isinstance(each, Tensor) for each in gives):
        raise BadFrame("a call must give tensors")
    tensors = tuple(each for each in gives if isinstance(each, Tensor))
    call = Call(
        _word(tree["verb"]),
        rank,
        tuple(_whole(each) for each in _list(tree["group"])),
        None if tree["peer"] is None else _whole(tree["peer"]),
        _word(tree["op"]),
        tuple(Kind.of(each) for each in tensors),
        tuple(_kind(each) for each in _list(tree["takes"])),
        _whole(tree["context"]),
        _whole(tree["tag"]),
    )
    try:
        check_form(call, size)
    except BadArgument as error:
        raise BadFrame(str(error)) from None
    return CallMessage(call=call, gives=tensors, is_async=tree["async"] is True)


def _kind(tree: Tree) -> Kind:
    """The dtype and shape of a tensor that a rank wants; not larger than what could be sent to it."""
    words = _list(tree)
    dtype = DTYPES.get(_word(words[0])) if len(words) == 2 else None
    shape = tuple(_whole(each) for each in _list(words[-1])) if dtype else ()
    if dtype is None or not can_be_sent(shape) or Kind(dtype, shape).bytes > MAX_FRAME:
        raise BadFrame("a call must take tensors of a dtype and shape that can be sent")
    return Kind(dtype, shape)


def _list(tree: Tree) -> list[Tree]:
    if not isinstance(tree, list) or len(tree) > MAX_ITEMS:
        raise BadFrame(f"a list in a call must have at most {MAX_ITEMS} entries")
    return tree


def _word(tree: Tree) -> str:
    if not isinstance(tree, str) or len(tree) > MAX_WORD:
        raise BadFrame(f"a verb, an op or a dtype must be a text of at most {MAX_WORD} characters")
    return tree


def _seconds(tree: Tree) -> float:
    if not isinstance(tree, float) or not 0 <= tree < math.inf:
        raise BadFrame("a time must be finite and at least 0")
    return tree


def _whole(tree: Tree) -> int:
    if type(tree) is not int or not 0 <= tree < 2**40:
        raise BadFrame("a number in a call must be a whole one")
    return tree
