"""A process of the autograder starts without what takes long, and nothing behaves otherwise for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

START = """
import sys
from autograder.start import quick_imports

with quick_imports():
    import torch
parameter = torch.nn.Parameter(torch.ones(2))
x = torch.ones(2, requires_grad=True)
"""
STEP = "parameter.grad = torch.ones(2); torch.optim.SGD([parameter], lr=0.5).step()\n"
LOADED = "print('sympy' in sys.modules)\n"


FORKS = """
import json, os
for line in sys.stdin:
    if os.fork() == 0:
        exec(json.loads(line), dict(globals()))
        sys.exit()
    print("ended", os.wait()[1], flush=True)
"""
Said = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def said() -> Iterator[Said]:
    """The lines that a program prints in a fork of a process that has started as ours do, and has done nothing yet."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", START + FORKS], **pipes) as process:

        def run(program: str) -> list[str]:
            print(json.dumps(program), file=process.stdin, flush=True)
            lines = []
            while not (line := process.stdout.readline().rstrip("\n")).startswith("ended"):
                lines.append(line)
            assert line == "ended 0", lines
            return lines

        yield run
        process.stdin.close()


def test_neither_a_step_nor_a_backward_pass_loads_the_compiler(said: Said) -> None:
    assert said(STEP + "(2 * x).backward(torch.ones(2)); print(x.grad.tolist(), parameter.tolist())\n" + LOADED) == [
        "[2.0, 2.0] [0.5, 0.5]",
        "False",
    ]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_who_compiles_gets_the_compiler(said: Said, backend: str) -> None:
    program = (
        f"y = torch.compile(lambda x: 2 * x + 1, backend={backend!r})(x); y.sum().backward(); print(x.grad.tolist())"
    )
    assert said(STEP + program + "\n" + STEP + LOADED) == ["[2.0, 2.0]", "True"]


def test_who_imports_the_compiler_gets_the_whole_of_it(said: Said) -> None:
    assert said("from torch._dynamo import config\nimport torch._dynamo\nprint(torch._dynamo.config is config)") == [
        "True"
    ]


def test_who_imports_one_of_its_modules_first_has_it_once(said: Said) -> None:
    program = """
import torch._dynamo.config as config
import torch._dynamo.eval_frame as eval_frame
config.suppress_errors = True
print(eval_frame.config is config, torch._dynamo.utils.config.suppress_errors, config.__spec__.name)
print(isinstance(torch.compile(torch.nn.Linear(1, 1), backend="eager"), eval_frame.OptimizedModule))
"""
    assert said(program) == ["True True torch._dynamo.config", "True"]


@pytest.mark.parametrize(
    "decorator", ["torch.compiler.disable", "torch.compiler.disable()", "torch._dynamo.disable(recursive=False)"]
)
def test_what_must_not_be_compiled_can_be_marked(said: Said, decorator: str) -> None:
    program = f"@{decorator}\ndef twice(x):\n    return 2 * x\nprint(twice(3))\n"
    assert said(program + LOADED) == ["6", "False"]


def test_a_gradient_by_torch_func_does_not_load_the_compiler(said: Said) -> None:
    program = "print(torch.func.grad(lambda x: (x * x).sum())(x.detach()).tolist())\n"
    assert said(program + LOADED) == ["[2.0, 2.0]", "False"]


def test_who_checkpoints_gets_the_same_gradient(said: Said) -> None:
    program = """
from torch.utils.checkpoint import checkpoint
checkpoint(torch.exp, x, use_reentrant=False).sum().backward()
print(torch.equal(x.grad, x.detach().exp()))
"""
    assert said(program) == ["True"]


def test_a_gradient_of_another_shape_is_refused_as_ever(said: Said) -> None:
    program = "try:\n    (2 * x).backward(torch.ones(3))\nexcept RuntimeError as error:\n    print(error)"
    assert "has a shape of torch.Size([3])" in said(program)[0]


def test_shapes_with_symbols_are_compared_by_torch_itself(said: Said) -> None:
    program = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import expect_true, sym_eq
from torch.fx.experimental.symbolic_shapes import ShapeEnv
print(expect_true(sym_eq((2, 3), torch.Size([2, 3]))), sym_eq([2, 3], [2, 4]), sym_eq(2, 2))
with FakeTensorMode(shape_env=ShapeEnv()) as mode:
    shape = mode.from_tensor(torch.ones(3, 2)).shape
    print(expect_true(sym_eq(shape, torch.Size([3, 2]))))
"""
    assert said(program) == ["True False True", "True"]


@pytest.mark.parametrize(
    ("deed", "loads"),
    [
        ("torch.optim.SGD([parameter]).zero_grad()", "torch._dynamo"),
        ("(2 * parameter).backward(torch.ones(2))", "torch.fx.experimental.symbolic_shapes"),
    ],
)
def test_what_is_left_out_is_what_torch_alone_loads(deed: str, loads: str) -> None:
    """Else a new torch has moved it, and the stand-in stands for nothing."""
    program = (
        f"import sys, torch\nparameter = torch.nn.Parameter(torch.ones(2))\n{deed}\nprint({loads!r} in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == ["True"], ran.stderr
