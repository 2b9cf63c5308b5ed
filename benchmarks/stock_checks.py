"""What the grade cells of an ordinary nbgrader release of lesson 01 assert, one function for each exercise.

Each function becomes the source of one cell, with a call below it. `answer` is the student's; `cases` is the list that
the release keeps beside the notebook: name, inputs, and what the right answer returns, in float64. The cases are those
of the course's own checks, the drawn inputs included. What these functions do not tell is which mistake was made.

Graphs are built from nodes that stop an endless walk, as a careful instructor would: a plain one walks until nbgrader's
time limit of 30 s, which would flatter whoever is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = Callable[..., Any]
Cases = list[dict[str, Any]]


def program_of(case: dict[str, Any]) -> list[list[Any]]:
    """The rows of a graph; a chain is kept as its length."""
    rows = case["program"]
    if isinstance(rows, dict):
        return [["+", last, 1] if last % 2 else ["*", last, 0] for last in range(1, rows["chain"])]
    return list(rows)


def check_quadratic_grads(answer: Answer, cases: Cases) -> None:
    """Value and both partial derivatives."""
    from math import isclose

    for case in cases:
        got, want = answer(*(case[name] for name in "abcxy")), case["want"]
        assert len(got) == 3, case["name"]
        for number, name in zip(got, ("value", "dx", "dy"), strict=True):
            assert isclose(number, want[name], rel_tol=1e-12), (case["name"], name)


def check_topological_order(answer: Answer, cases: Cases) -> None:
    """Every needed node once, inputs before users, and without walking every path."""
    from course.lessons.graph import Node, run_program

    class Guarded(Node):
        reads = 0

        @property
        def inputs(self) -> tuple[Node, ...]:
            type(self).reads += 1
            assert type(self).reads < 1_000_000, "every path is walked"
            return self._inputs

        @inputs.setter
        def inputs(self, nodes: tuple[Node, ...]) -> None:
            self._inputs = nodes

    for case in cases:
        Guarded.reads = 0
        nodes = run_program(case["leaves"], program_of(case), Guarded)
        for _ in range(case["calls"]):
            order = answer(nodes[case["root"]])
        place = {id(node): index for index, node in enumerate(order)}
        needed = {id(nodes[int(index)]) for index in case["want"]["order"]}
        assert len(order) == len(place), case["name"]
        assert set(place) == needed, case["name"]
        for node in order:
            assert all(place[id(each)] < place[id(node)] for each in node.inputs), case["name"]


def check_backward(answer: Answer, cases: Cases) -> None:
    """Gradients of all leaves; each local derivative asked for twice at most."""
    from collections import Counter

    import torch

    from course.lessons.graph import Node, run_program

    uses: Counter[int] = Counter()
    local: dict[int, list[float]] = {}

    class Guarded(Node):
        def local_derivatives(self) -> tuple[float, ...]:
            uses[id(self)] += bool(self.op)
            assert uses[id(self)] < 100, "every path is walked"
            return tuple(local.get(id(self), super().local_derivatives()))

    for case in cases:
        uses.clear()
        nodes = run_program(case["leaves"], program_of(case), Guarded)
        inner = (id(node) for node in nodes if node.op)
        local = dict(zip(inner, case["local"], strict=True)) if case["hides"] else {}
        for root in case["roots"]:
            answer(nodes[root])
        grads = torch.tensor([node.grad for node in nodes if not node.op], dtype=torch.float64)
        torch.testing.assert_close(grads, case["want"]["grads"], msg=case["name"])
        assert max(uses.values(), default=0) <= 2 * len(case["roots"]), case["name"]


def check_hinge_backward(answer: Answer, cases: Cases) -> None:
    """All five derivatives; the lists are left alone."""
    import copy

    import torch

    for case in cases:
        given = copy.deepcopy([case[name] for name in "wxby"])
        got = answer(*given)
        assert len(got) == 5, case["name"]
        for value, name in zip(got, ("dw", "dx", "db", "dy", "dz"), strict=True):
            wanted = torch.as_tensor(case["want"][name], dtype=torch.float64)
            torch.testing.assert_close(torch.as_tensor(value, dtype=torch.float64), wanted, msg=case["name"])
        assert given == [case[name] for name in "wxby"], case["name"]


def check_unbroadcast(answer: Answer, cases: Cases) -> None:
    """Value, shape and dtype; grad is left alone."""
    import torch

    for case in cases:
        grad = case["grad"].clone()
        got = answer(grad, tuple(case["shape"]))
        torch.testing.assert_close(got, case["want"]["summed"].to(grad.dtype), msg=case["name"])
        assert torch.equal(grad, case["grad"]), case["name"]


def check_linear_vjp(answer: Answer, cases: Cases) -> None:
    """Three gradients in the dtype of the inputs, which are left alone."""
    import torch

    for case in cases:
        given = [case[name].clone() for name in ("dout", "x", "w")]
        got = answer(*given)
        assert len(got) == 3, case["name"]
        for value, name in zip(got, ("dx", "dw", "db"), strict=True):
            torch.testing.assert_close(value, case["want"][name].to(given[1].dtype), msg=case["name"])
        assert all(torch.equal(one, case[name]) for one, name in zip(given, ("dout", "x", "w"), strict=True))


def check_softmax_cross_entropy(answer: Answer, cases: Cases) -> None:
    """Loss and gradient, finite and in the dtype of the logits, which are left alone."""
    import torch

    for case in cases:
        logits, targets = case["logits"].clone(), case["targets"].clone()
        got = answer(logits, targets)
        assert len(got) == 2, case["name"]
        for value, name in zip(got, ("loss", "dlogits"), strict=True):
            torch.testing.assert_close(torch.as_tensor(value), case["want"][name].to(logits.dtype), msg=case["name"])
        assert torch.equal(logits, case["logits"]), case["name"]
        assert torch.equal(targets, case["targets"]), case["name"]


def check_SaveLess(answer: Any, cases: Cases) -> None:
    """Value, first and second derivative, and how many bytes stay alive besides the results."""
    import torch

    from course.meter import kept_bytes

    def derivatives(case: dict[str, Any], x: torch.Tensor) -> dict[str, torch.Tensor]:
        if case["asks"] == "memory":
            with kept_bytes() as meter:
                ys = [answer.apply(x + own) for own in case["layers"]]
            kept = meter.bytes_alive() - sum(y.nbytes for y in ys)
            assert 0 < kept <= case["layers"].nbytes, (case["name"], kept)
            y = ys[case["layer"]]
            return {"y": y[0], "dx": torch.autograd.grad(y, x, torch.ones_like(x))[0][0]}
        y = answer.apply(x)
        if case["asks"] == "value":
            return {"y": y}
        dy = case["dy"].clone().requires_grad_()
        (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
        if case["asks"] == "first":
            return {"y": y, "dx": dx}
        second_x, second_dy = torch.autograd.grad((case["v"] * dx).sum(), [x, dy])
        return {"dx": dx, "second_x": second_x, "second_dy": second_dy}

    for case in cases:
        found = derivatives(case, case["x"].clone().requires_grad_())
        for name, value in found.items():
            wanted = case["want"][name].to(case["x"].dtype)
            torch.testing.assert_close(value.detach(), wanted, msg=case["name"])


def check_accumulate_gradients(answer: Answer, cases: Cases) -> None:
    """Parameters and losses after all steps; one step a group, one micro-batch in one call of the model."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self, case: dict[str, Any]) -> None:
            super().__init__()
            parts = (nn.Parameter(case[name].clone()) for name in ("weight", "bias", "gain"))
            self.weight, self.bias, self.gain = parts
            self.matrices, self.spare = case["matrices"], case.get("spare", 0.0)
            self.tokens: list[int] = []

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.tokens.append(inputs.numel() // inputs.shape[-1])
            waves = (inputs @ self.matrices[0].T).sin()
            a, b = ((waves @ matrix).tanh() for matrix in self.matrices[1:])
            return nn.functional.linear(a + self.gain * b, self.weight, self.bias) + self.spare

    for case in cases:
        model = Model(case)
        steps: list[int] = []
        model.bias.grad = case["stale"].clone() if "stale" in case else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        micro_batches = [(x.clone(), y.clone()) for x, y in zip(case["inputs"], case["targets"], strict=True)]
        losses = answer(model, optimizer, micro_batches, case["every"])
        found = {
            "weight": model.weight.detach(),
            "bias": model.bias.detach(),
            "gain": model.gain.detach(),
            "losses": torch.tensor([float(loss) for loss in losses], dtype=torch.float32),
        }
        for name in found.keys() & case["want"].keys():  # none of the long one, whose step an oracle works out
            wanted = case["want"][name].float()
            torch.testing.assert_close(found[name], wanted if name == "losses" else wanted[-1], msg=case["name"])
        assert len(steps) == -(-len(micro_batches) // case["every"]), case["name"]
        sizes = [targets.numel() for targets in case["targets"]]
        assert max(model.tokens) <= max(sizes), case["name"]
        assert sum(model.tokens) <= sum(sizes), case["name"]
        for (x, y), x_before, y_before in zip(micro_batches, case["inputs"], case["targets"], strict=True):
            assert torch.equal(x, x_before), case["name"]
            assert torch.equal(y, y_before), case["name"]


def check_hvp(answer: Answer, cases: Cases) -> None:
    """H v to rounding, x and v left alone, and no Hessian: the long x takes 1,000 operations at most."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    for case in cases:

        def f(x: torch.Tensor, case: dict[str, Any] = case) -> torch.Tensor:
            if "quadratic" not in case:
                return torch.sin(x[1:] * x[:-1]).sum() + (x**3).sum()
            flat = x.reshape(-1)
            waves: torch.Tensor = (case["weights"] * torch.sin(case["mix"] @ flat)).sum()
            quadratic: torch.Tensor = flat @ (case["quadratic"] @ flat) / 2
            return quadratic + waves

        x, v = case["x"].clone(), case["v"].clone()
        with Operations() as operations:  # type: ignore[no-untyped-call]
            product = answer(f, x, v)
        seen = product[case["looked_at"]] if "looked_at" in case else product
        torch.testing.assert_close(seen, case["want"]["hv"], rtol=1e-12, atol=1e-12, msg=case["name"])
        assert torch.equal(x, case["x"]), case["name"]
        assert torch.equal(v, case["v"]), case["name"]
        assert not x.requires_grad, case["name"]
        assert x.numel() < 100 or operations.count <= 1_000, case["name"]
