"""The reference of `optimizer_bytes` against what is measured on torch.optim."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.optimizer_bytes import NAMES, optimizer_bytes

TORCH = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
    "muon": torch.optim.Muon,
}
MATRICES = [(7, 5), (4, 9), (1, 6)]
MODEL = [*MATRICES, (), (1,), (8,), (2, 3, 4), (5, 4, 3, 3), (6, 2, 1, 1)]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def measured(shapes, name, dtype):
    """Bytes of all tensors in torch's state after one step on real parameters of this dtype."""
    params = [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes]
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer = TORCH[name](params)
    optimizer.step()
    kept = [each for state in optimizer.state.values() for each in state.values()]
    return sum(each.nbytes for each in kept if isinstance(each, torch.Tensor))


def shapes_for(name):
    return MATRICES if name == "muon" else MODEL


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("state", DTYPES)
@pytest.mark.parametrize("param", [*DTYPES, torch.float8_e4m3fn])
def test_equals_what_is_measured(name, state, param):
    shapes = shapes_for(name)
    master = [torch.empty(shape, dtype=torch.float32) for shape in shapes if param.itemsize < 4]
    wanted = measured(shapes, name, state) + sum(each.nbytes for each in master)
    assert optimizer_bytes(shapes, name, {"param": param, "state": state}) == wanted


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adamw", "adafactor"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_step_counter_of_torch_is_one_float32(name, dtype):
    param = torch.nn.Parameter(torch.ones(3, 2, dtype=dtype))
    param.grad = torch.ones_like(param)
    optimizer = TORCH[name]([param])
    optimizer.step()
    step = optimizer.state[param]["step"]
    assert (step.shape, step.dtype) == ((), torch.float32)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 3, 1, 1)])
def test_muon_refuses_the_shapes_that_torch_refuses(shape):
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([torch.nn.Parameter(torch.ones(shape))])
    with pytest.raises(BadArgument, match="muon must be given matrices only"):
        optimizer_bytes([(2, 2), shape], "muon", {"param": torch.float32, "state": torch.float32})


def test_an_unknown_name_is_refused():
    with pytest.raises(BadArgument, match=r"name must be one of sgd, momentum, .* got 'adam'"):
        optimizer_bytes([(2, 2)], "adam", {"param": torch.float32, "state": torch.float32})


def test_a_billion_parameters_take_no_memory_to_count():
    dtypes = {"param": torch.bfloat16, "state": torch.float32}
    assert optimizer_bytes([(50_000, 20_000)], "adamw", dtypes) == 12 * 10**9 + 4
