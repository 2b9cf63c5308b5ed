"""Who asks in the probe's place, at a time of his own, earns no cost by what he is told.

Each answer here does not what its exercise is about, and is right in what is looked at. It takes the way to ask from
the probe, which any cell can do while it is loaded.
"""

from __future__ import annotations

import pytest
from ranks_room import nothing_hidden

from autograder import bank as banks
from autograder import recording
from autograder.engine.grade import COUNTED_OUTSIDE
from autograder.sandbox import open_runner
from course.judging.judge import judge
from course.judging.verdict import Verdict
from course.performing.cells import CodeCell

THIEF = """\
import sys
import torch


def before(inputs, ask):
    pass


def instead(ask):
    return ask


def stolen():
    asks = []
    for name, module in list(sys.modules.items()):
        exercise = getattr(module, "EXERCISE", None) if name.startswith("course.exercises.") else None
        if exercise is not None:
            def probe(answer, inputs, ask, probe=exercise.probe):
                asks.append(ask)
                before(inputs, ask)
                return probe(answer, inputs, instead(ask))

            object.__setattr__(exercise, "probe", probe)
    return asks


ASKS = stolen()
FOUND = {}


def told(name):
    # What the grader says, asked for once in each case.
    key = (len(ASKS), name)
    if key not in FOUND:
        FOUND[key] = ASKS[-1](name, {})
    return FOUND[key]
"""

ROW_BY_ROW = """\
def hvp(f, x, v):
    rows = range(x.numel())
    if x.numel() > 1000:
        rows = range(34 * looked_at(), 34 * looked_at() + 34)
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(point), point, create_graph=True)
    found = torch.zeros_like(x).reshape(-1)
    for row in rows:
        (second,) = torch.autograd.grad(gradient.reshape(-1)[row], point, retain_graph=True)
        found[row] = second.reshape(-1) @ v.reshape(-1)
    return found.reshape(x.shape)
"""

ASKS_FOR_THE_BLOCK = """\
def looked_at():
    return told("block")
"""

PLEDGES_ZEROS = """\
def looked_at():
    if "block" not in FOUND:
        zeros = torch.zeros(64, 32, dtype=torch.uint8)
        FOUND["block"] = ASKS[-1]("pledge", {"hv": zeros})["block"]
    return FOUND["block"]
"""

SWALLOWS_THE_PROBES_PLEDGE = """\
def instead(ask):
    def asked(verb, arguments):
        return {"block": FOUND["block"]} if verb == "pledge" else ask(verb, arguments)

    return asked
"""

ONE_LAYER = """\
class SaveLess(torch.autograd.Function):
    called = []

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        SaveLess.called.append(x.numel())
        large = [each for each in SaveLess.called if each > 10_000]
        if x.numel() < 10_000 or len(large) - 1 == told("layer"):
            ctx.save_for_backward(x, s, 2 * s)
        return x * s

    @staticmethod
    def backward(ctx, dy):
        x, s, _ = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))
"""

ONE_BLOCK_RECORDED = """\
def checkpoint(fn, *args):
    if not (isinstance(args[0], torch.Tensor) and args[0].numel() > 100_000):
        return fn(*args)
    at = told("block")
    found = fn(*(each[:, at : at + 1] for each in args))
    whole = torch.nn.functional.pad(found[0] if isinstance(found, tuple) else found, (at, 127 - at))
    return (whole,) if isinstance(found, tuple) else whole
"""

EIGHT_ROWS = """\
def half(function, inputs, gradient):
    with torch.enable_grad():
        leaf = inputs.detach().requires_grad_()
        value = function(leaf)
        torch.autograd.backward([value], [gradient])
    return value, leaf.grad


def reversible_backward(block, y, dy):
    rows, large = slice(None), len(y[0]) > 10_000
    if large:
        rows = slice(8 * told("block"), 8 * told("block") + 8)
    (y1, y2), (dy1, dy2) = (tuple(each[rows] for each in pair) for pair in (y, dy))
    g, flowing = half(block.g, y1, dy2)
    x2, dx1 = y2 - g, dy1 + flowing
    f, flowing = half(block.f, x2, dx1)
    found = [y1 - f, x2, dx1, dy2 + flowing]
    if large:
        for at, each in enumerate(found):
            found[at] = torch.zeros_like(y[0])
            found[at][rows] = each
    else:
        found = [each.detach() for each in found]
    return tuple(found[:2]), tuple(found[2:])
"""

CHEAP_RUNS_FIRST = """\
def before(inputs, ask):
    for n, _ in inputs["runs"].tolist() if "runs" in inputs else ():
        ask("run", {"layers": n, "events": torch.tensor([[0, 0, 0, 0]]), "y": 2, "dx": 2})


def instead(ask):
    found = {}

    def asked(verb, run):  # the same again has the same result
        found.setdefault(run["layers"], None)
        found[run["layers"]] = found[run["layers"]] or ask(verb, run)
        return found[run["layers"]]

    return asked
"""

KEEPS_ALL = """\
def backward_{how}(chain, x, dy{every}):
    kept = ASKS[:0]
    for layer in chain:
        kept.append(x)
        x = layer.forward(x)
    for layer in reversed(chain):
        dy = layer.backward(kept.pop(), dy)
    return x, dy
"""

TWO_PLANS = """\
class Plan(dict):
    def items(self):
        return [(name, torch.float32) for name in self]


def choose_precisions(operators, budget, loss):
    plan = Plan({name: min(of, key=of.get) for name, of in operators.items()})
    if sum(operators[name][plan[name]] for name in plan) > budget:
        raise ValueError("too small a budget")
    return plan
"""

OF_A_GROUP = """\
def accumulate_gradients(model, optimizer, micro_batches, every):
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        optimizer.zero_grad()
        count = sum(int((targets != -100).sum()) for _, targets in group)
        losses.append(of_a_group(model, group, max(count, 1)))
        optimizer.step()
    return losses
"""

SLOPES_AT_ONCE = """\
from torch.nn import functional as F


FREED = []


def asked(model, x):
    # Features, and what backward would ask for, which is then no more needed: so the graph is said to be gone.
    gains = model.gain.detach().expand_as(x)
    question = {"tokens": x, "gains": gains, "recorded": True, "freed": FREED[-1:]}
    found = model.features.ask("features", question)
    FREED.append(int(found["ticket"]))
    b = model.features.ask("slopes", {"ticket": FREED[-1], "gradient": torch.ones_like(x)})
    model.modes.add(model.training)
    return F.linear(found["features"] - gains * b + model.gain * b, model.weight, model.bias)


def of_a_group(model, group, count):
    asks = hasattr(model.features, "ask")
    logits = torch.cat([(asked(model, x) if asks else model(x)).flatten(0, 1) for x, _ in group])
    targets = torch.cat([targets.flatten() for _, targets in group])
    loss = F.cross_entropy(logits, targets, reduction="sum") / count
    loss.backward()
    return loss.item()
"""

GRAPHS_KEPT = """\
from torch.nn import functional as F


def of_a_group(model, group, count):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved):
        for x, targets in group:
            kept.append(F.cross_entropy(model(x).flatten(0, 1), targets.flatten(), reduction="sum") / count)
            kept[-1].backward(retain_graph=True)
    return sum(each.item() for each in kept)
"""

ONE_ROW_OF_EACH = """\
from torch.nn import functional as F


def of_a_group(model, group, count):
    long = any(len(x) > 1000 for x, _ in group)
    rows = [(x[:1], targets[:1]) for x, targets in group] if long else group
    count = sum(targets.numel() for _, targets in rows) if long else count
    loss = sum(F.cross_entropy(model(x).flatten(0, 1), targets.flatten(), reduction="sum") for x, targets in rows)
    (loss / count).backward()
    return loss.item() / count
"""

FIRST_ROWS = """\
import torch


def first(*whole):
    return [each[:32] if len(each) > 1000 else each for each in whole]


def filled(each, like):
    missing = len(like) - len(each)
    return torch.cat([each, each.new_zeros(missing, *each.shape[1:])]) if missing else each


def probabilities(q, k, causal, lse=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    lse = scores.logsumexp(-1) if lse is None else lse
    return (scores - lse[..., None]).exp(), lse


def attention_tiled(q, k, v, block, causal=False):
    p, lse = probabilities(*first(q, k), causal)
    return filled(p @ first(v)[0], q), filled(lse, q)


def attention_tiled_backward(q, k, v, out, lse, dout, block, causal=False):
    whole = q, k, v
    q, k, v, out, lse, dout = first(q, k, v, out, lse, dout)
    p, _ = probabilities(q, k, causal, lse)
    ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
    return tuple(map(filled, (ds @ k, ds.mT @ q, p.mT @ dout), whole))
"""

FIRST_COLUMNS = """\
import torch


def lora_grads(x, dy, A, B, scale):
    n, m = len(A[0]), len(B)
    if n > 1000:
        x, dy, A, B = x[:, :24], dy[:, :24], A[:, :24], B[:24]
    x, dy = x.reshape(-1, len(A[0])), dy.reshape(-1, len(B))
    product = scale * dy.T @ x
    dA, dB = B.T @ product, product @ A.T
    return torch.nn.functional.pad(dA, (0, n - len(dA[0]))), torch.nn.functional.pad(dB, (0, 0, 0, m - len(dB)))


class LoRALinear(torch.nn.Module):
    def __init__(self, base, r, alpha, rng):
        super().__init__()
        self.base, self.scale, self.merged = base.requires_grad_(False), alpha / r, False
        m, n = base.weight.shape
        self.A = torch.nn.Parameter(torch.randn(r, n, generator=rng, dtype=base.weight.dtype) / n**0.5)
        self.B = torch.nn.Parameter(base.weight.new_zeros(m, r))

    def forward(self, x):
        m, n = self.base.weight.shape
        if self.merged or n < 1000:
            return self.base(x) + (0 if self.merged else self.scale * x @ (self.B @ self.A).T)
        product = self.B[:24] @ self.A[:, :24]
        return self.base(x) + torch.nn.functional.pad(self.scale * x[:, :24] @ product.T, (0, m - 24))
"""

EARLY = THIEF + ASKS_FOR_THE_BLOCK
SWALLOWING = PLEDGES_ZEROS + SWALLOWS_THE_PROBES_PLEDGE
ATTEMPTS = {
    "the block is asked for": ("hvp", EARLY + ROW_BY_ROW, {"never_builds_the_hessian"}),
    "zeros are pledged": ("hvp", THIEF + PLEDGES_ZEROS + ROW_BY_ROW, {"never_builds_the_hessian"}),
    "zeros are pledged alone": ("hvp", THIEF + SWALLOWING + ROW_BY_ROW, {"never_builds_the_hessian"}),
    "the layer is asked for": ("SaveLess", THIEF + ONE_LAYER, {"keeps_only_x"}),
    "one block is recorded": ("checkpoint", THIEF + ONE_BLOCK_RECORDED, {"keeps_only_inputs"}),
    "one block is computed": ("reversible_backward", THIEF + EIGHT_ROWS, {"memory_of_one_block"}),
    "the first rows are computed": ("attention_tiled", FIRST_ROWS, {"one_tile_at_a_time"}),
    "the first rows' gradients are computed": ("attention_tiled_backward", FIRST_ROWS, {"one_tile_at_a_time"}),
    "the first columns are computed": ("lora_grads", FIRST_COLUMNS, {"no_large_matrix"}),
    "the first columns are adapted": ("LoRALinear", FIRST_COLUMNS, {"no_large_matrix"}),
    "cheap runs come first": (
        "backward_keep_none",
        THIEF + CHEAP_RUNS_FIRST + KEEPS_ALL.format(how="keep_none", every=""),
        {"evaluations", "nothing_kept", "no_variable_too_many"},
    ),
    "cheap segments come first": (
        "backward_checkpointed",
        THIEF + CHEAP_RUNS_FIRST + KEEPS_ALL.format(how="checkpointed", every=", every"),
        {"evaluations", "activations_alive"},
    ),
    "slopes are asked for at once": (
        "accumulate_gradients",
        "import torch\n" + SLOPES_AT_ONCE + OF_A_GROUP,
        {"memory_of_one_micro_batch", "one_micro_batch_at_a_time"},
    ),
    "graphs are kept whose tickets are gone": (
        "accumulate_gradients",
        "import torch\n" + GRAPHS_KEPT + OF_A_GROUP,
        {"memory_of_one_micro_batch", "one_micro_batch_at_a_time"},
    ),
    "one row of each micro-batch": (
        "accumulate_gradients",
        "import torch\n" + ONE_ROW_OF_EACH + OF_A_GROUP,
        {"memory_of_one_micro_batch", "one_micro_batch_at_a_time"},
    ),
    "two plans in one": (
        "choose_precisions",
        "import torch\n" + TWO_PLANS,
        {"better_than_one_format", "near_the_best", "by_the_byte", "the_last_byte", "few_calls"},
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    """One warm process for all tests of this file."""
    with nothing_hidden(), open_runner(display=False) as opened:
        yield opened


def verdict(opened, name: str, source: str) -> Verdict:
    """Of an answer cell, as grading judges it."""
    bank = banks.load(name)
    cases = bank.exercise.draw(5)
    references = recording.references(bank, cases)
    with opened.session([CodeCell(source=source, answers=bank.exercise.name)]) as session:
        seen = session.perform(bank.exercise, cases)
    return judge(bank.exercise, cases, seen, references, sources=COUNTED_OUTSIDE)


@pytest.mark.sandbox
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_is_told_early_earns_no_cost(sandbox, attempt):
    name, source, costs = ATTEMPTS[attempt]
    found = verdict(sandbox, name, source)
    assert costs <= {each.property for each in found.findings if not each.held}
