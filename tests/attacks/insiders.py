"""Answers that change what stands between them and the grader, inside their own process: probe, meters, serialiser.

The answers give right values at a price that loses points; the patches claim that they were cheap.
"""

from __future__ import annotations

from attacks.attack import answer, body

CHEAP = """\
import sys


def frames():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


LEDGER = {
    "uses_of_one_local_derivative": 1,
    "bytes_kept_besides_y": 0,
    "operations_up_to": 1,
    "largest_tensor_up_to": 1,
    "peak_bytes": 0,
    "cpu_seconds": 0.0,
}


def claim(source="kernel"):
    # Everything that leaves this process says that it was cheap, and who says so; where that is in reach.
    try:
        from course.performing.exercise import Observation
    except Exception:
        return

    honest = Observation.__init__

    def lie(self, **fields):
        fields["ledger"] = {**fields.get("ledger", {}), **LEDGER}
        fields["sources"] = dict.fromkeys(fields["ledger"], source)
        honest(self, **fields)

    Observation.__init__ = lie
    for name, module in list(sys.modules.items()):
        if name.startswith("autograder.sandbox") and hasattr(module, "from_observations"):
            packed = module.from_observations

            def forged(seen, packed=packed):
                tree = packed(seen)
                for each in tree:
                    each["ledger"] = dict(LEDGER)
                    each["sources"] = dict.fromkeys(LEDGER, source)
                    each["points"] = each["verdict"] = 1000
                return tree

            module.from_observations = forged
    for frame in frames():
        for thing in list(frame.f_locals.values()):
            if isinstance(thing, dict) and thing and all(type(value) is int for value in thing.values()):
                thing.clear()  # whatever counts


"""

FIVE_TIMES = """\
from course.lessons.graph import Node


def backward(root):
    order, seen, waiting = [], set(), [(root, False)]
    while waiting:
        node, done = waiting.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting.extend((each, False) for each in node.inputs)
    flowing = {root: 1.0}
    for node in reversed(order):
        if not node.inputs:
            node.grad += flowing[node]
            continue
        for _ in range(5):
            derivatives = node.local_derivatives()
        for each, local in zip(node.inputs, derivatives):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
    {claim}
"""

ALL_ROWS = """\
import torch


def hvp(f, x, v):
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(point), point, create_graph=True)
    ones = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    (rows,) = torch.autograd.grad(gradient, point, ones, is_grads_batched=True)  # one after the other takes too long
    {claim}
    return (rows.reshape(x.numel(), -1) @ v.detach().reshape(-1)).reshape(x.shape)
"""

KEEPS_MORE = """\
import torch


class SaveLess(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s, s * 2, s * 3)
        {claim}
        return x * s

    @staticmethod
    def backward(ctx, dy):
        x, _, _, _ = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))
"""

ASKER = """\
import sys


def asker():
    frame = sys._getframe()
    while frame is not None:
        if callable(frame.f_locals.get("ask")):
            return frame.f_locals["ask"]
        frame = frame.f_back
    raise LookupError("nobody can be asked")


"""

QUESTIONS = """\
def backward(root):
    ask = asker()
    asked = [("ledger", None), ("reset", 0), ("local_derivatives", -1), ("local_derivatives", True)]
    asked += [("local_derivatives", 10**30), ("local_derivatives", {"a": [1] * 50}), ("__init__", []), ("", "")]
    asked += [("local_derivatives", float("nan")), ("x" * 100_000, 1), ("local_derivatives", "x" * 1_000_000)]
    for verb, arguments in asked:
        try:
            answered = ask(verb, arguments)
        except Exception:
            continue
        won(f"{verb:.20} {arguments!r:.20} {answered!r:.60}")
"""

FLOOD = """\
def backward(root):
    ask = asker()
    for number in range(10_000_000):
        try:
            ask("local_derivatives", number % 5)
        except Exception:
            pass
    won("ten million questions")
"""

BLOCK_BY_BLOCK = """\
import torch


def hvp(f, x, v):
    # Row by row, of a long x the rows of the block that is looked at only.
    rows = range(x.numel())
    if x.numel() > 1000:
        block = asker()("block", {})
        rows = range(34 * block, 34 * block + 34)
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(point), point, create_graph=True)
    found = torch.zeros_like(x).reshape(-1)
    for row in rows:
        (second,) = torch.autograd.grad(gradient.reshape(-1)[row], point, retain_graph=True)
        found[row] = second.reshape(-1) @ v.reshape(-1)
    return found.reshape(x.shape)
"""

JUDGE = """
import sys, types
judging = ("judge", "diagnosis", "verdict")
names = ("course.performing.compare", "course.notebook.check", "course.notebook.report")
for name in (*names, *(f"course.judging.{each}" for each in judging)):
    module = types.ModuleType(name)
    module.judge = module.compare = module.check = module.describe = lambda *args, **kwargs: 96
    sys.modules[name] = module
exercise = sys.modules["course.exercises.computational_graphs.quadratic_grads"].EXERCISE
for each in exercise.properties:
    object.__setattr__(each, "points", 1000)
    object.__setattr__(each, "holds", lambda *args: None)
    object.__setattr__(each, "keys", ())
return 0.25, 0.25, 0.25
"""

SERIALISER = """
import json
import sys
true_dumps = json.dumps
def dumps(thing, **kwargs):
    return true_dumps({"points": 6, "held": True, "verdict": thing}, **kwargs)
json.dumps = dumps
for name, module in list(sys.modules.items()):
    if name.startswith("safetensors"):
        module.save = module.serialize = lambda *args, **kwargs: bytes(64)
return 0.25, 0.25, 0.25
"""

PROBE = """
import course.performing.exercise, course.performing.perform
from course.performing.exercise import Observation
def perform(*args, **kwargs):
    return Observation(values={"value": 1.0, "dx": 1.0, "dy": 1.0})
course.performing.perform.perform = course.performing.perform.perform_all = perform
course.performing.exercise.observe = lambda *args, **kwargs: perform()
return 0.25, 0.25, 0.25
"""


def _claims(source: str) -> str:
    return CHEAP + source.replace("{claim}", "claim()")


ATTACKS = [
    answer("patched_ledger_of_uses", _claims(FIVE_TIMES), exercise="backward", earns=11, costly=True),
    answer("patched_ledger_of_operations", _claims(ALL_ROWS), exercise="hvp", earns=10, costly=True),
    answer("patched_ledger_of_bytes", _claims(KEEPS_MORE), exercise="SaveLess", earns=10),
    answer("questions_that_nobody_answers", ASKER + QUESTIONS, exercise="backward"),
    answer("a_block_that_is_asked_for_first", ASKER + BLOCK_BY_BLOCK, exercise="hvp", earns=9),
    answer("a_flood_of_questions", ASKER + FLOOD, exercise="backward", costly=True),
    body("patched_judge", JUDGE),
    body("patched_serialiser", SERIALISER),
    body("patched_probe", PROBE),
]
