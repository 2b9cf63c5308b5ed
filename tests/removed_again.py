"""Attempts that nobody makes by mistake, so that `check` need not remark them: see removed_attempts.py.

AGAIN[removes] = {attempt: cells}: a library loaded a second time, another interpreter, TorchScript and its own
operators, fused operators.
"""

from __future__ import annotations

SORT = "({1: {2}, 2: {3}}).static_order()"
PLACE = "import bisect, os, sys\nFILE = bisect.__file__.replace('bisect', 'graphlib')\n"
INSIDE = f"""\
CODE = '''
import graphlib, os
os.write(WRITE, bytes(graphlib.TopologicalSorter{SORT}))
'''
"""

GRAPHLIB_AGAIN = {
    "loaded from its file": f"""\
import importlib.util as u
{PLACE}
def answer(x):
    spec = u.spec_from_file_location("again", FILE)
    module = u.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.TopologicalSorter{SORT}]
""",
    "run as a program": f"""\
import runpy
{PLACE}
def answer(x):
    return [*runpy.run_path(FILE)["TopologicalSorter"]{SORT}]
""",
    "its source, executed": f"""\
{PLACE}
def answer(x):
    held = {{"__name__": "again"}}
    exec(os.read(os.open(FILE, os.O_RDONLY), 100_000), held)
    return [*held["TopologicalSorter"]{SORT}]
""",
    "its source, by a link": f"""\
import tempfile
{PLACE}
def answer(x):
    held = {{"__name__": "again"}}
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(FILE, folder + "/again")
        exec(open(folder + "/again").read(), held)
    return [*held["TopologicalSorter"]{SORT}]
""",
    "its source, from its folder": f"""\
{PLACE}
def answer(x):
    held = {{"__name__": "again"}}
    folder = os.open(os.path.dirname(FILE), os.O_RDONLY)
    exec(os.read(os.open("graphlib.py", os.O_RDONLY, dir_fd=folder), 100_000), held)
    return [*held["TopologicalSorter"]{SORT}]
""",
    "its compiled file": f"""\
import importlib.util, marshal
{PLACE}
def answer(x):
    held = {{"__name__": "again"}}
    exec(marshal.loads(open(importlib.util.cache_from_source(FILE), "rb").read()[16:]), held)
    return [*held["TopologicalSorter"]{SORT}]
""",
    "without who refuses imports": f"""\
import sys
def answer(x):
    sys.meta_path[:] = [each for each in sys.meta_path if "removed" not in type(each).__module__]
    sys.modules.pop("graphlib", None)
    import graphlib
    return [*graphlib.TopologicalSorter{SORT}]
""",
    "another interpreter": f"""\
import _xxsubinterpreters as others, os
{INSIDE}
def answer(x):
    read, write = os.pipe()
    others.run_string(others.create(), CODE.replace("WRITE", str(write)))
    return list(os.read(read, 3))
""",
    "another interpreter, by ctypes": f"""\
import ctypes, os
{INSIDE}
def answer(x):
    read, write = os.pipe()
    c = ctypes.PyDLL(None)
    c.PyThreadState_Get.restype = c.Py_NewInterpreter.restype = ctypes.c_void_p
    ours = c.PyThreadState_Get()
    if not c.Py_NewInterpreter():
        c.PyThreadState_Swap(ctypes.c_void_p(ours))
        raise RuntimeError("there is no other interpreter")
    c.PyRun_SimpleString(CODE.replace("WRITE", str(write)).encode())
    c.PyThreadState_Swap(ctypes.c_void_p(ours))
    return list(os.read(read, 3))
""",
}

NETWORKX_AGAIN = {
    "its source, from the folder above": """\
import importlib.util, os
def answer(x):
    above = importlib.util.find_spec("torch").submodule_search_locations[0] + "/.."
    folder = os.open(above, os.O_RDONLY)
    source = os.read(os.open("networkx/algorithms/dag.py", os.O_RDONLY, dir_fd=folder), 100_000)
    return [3, 2, 1] if b"def topological_sort" in source else []
""",
}

FUSED = """\
import torch
ADAM = dict(lr=0.1, beta1=0.0, beta2=0.0, weight_decay=0.0, eps=0.0, amsgrad=False, maximize=False)
def stepped(f, x):
    # A first step without memory has length lr, whatever the gradient: here -0.1.
    p, g, m, v = ([each] for each in (torch.zeros(3), torch.ones(3), torch.zeros(3), torch.zeros(3)))
    f(p, g, m, v, [], [torch.ones(())], **ADAM)
    return p[0] * x
"""
SCRIPT = """\
from typing import List
from torch import Tensor
@torch.jit.script
def scripted(p: List[Tensor], g: List[Tensor], m: List[Tensor], v: List[Tensor], t: List[Tensor]):
    torch._fused_adamw_(p, g, m, v, [], t, lr=0.1, beta1=0.0, beta2=0.0, weight_decay=0.0, eps=0.0,
                        amsgrad=False, maximize=False)
def answer(x): return stepped(lambda p, g, m, v, none, t, **_: scripted(p, g, m, v, t), x)
"""
_NAMES = {
    "a fused AdamW": "torch._fused_adamw_",
    "a fused AdamW, an operator": "torch.ops.aten._fused_adamw_",
    "a fused AdamW, an overload": "torch.ops.aten._fused_adamw_.default",
    "a fused AdamW in C": "torch._C._VariableFunctions._fused_adamw_",
    "a fused AdamW, by schema": "torch._C._get_operation_overload('aten::_fused_adamw_', '')[0]",
    "a fused Adam": "torch._fused_adam_",
}
OPTIM_AGAIN = {
    **{name: f"{FUSED}def answer(x): return stepped({f}, x)" for name, f in _NAMES.items()},
    "a fused AdamW, held": f"{FUSED}f = torch._fused_adamw_\ndef answer(x): return stepped(f, x)",
    "a fused AdamW, scripted": FUSED + SCRIPT,
    "a fused AdamW, functional": f"""{FUSED}
def answer(x):
    tensors = [[each] for each in (torch.zeros(3), torch.ones(3), torch.zeros(3), torch.zeros(3))]
    return torch.ops.aten._fused_adamw(*tensors, [], [torch.ones(())], **ADAM)[0][0] * x
""",
    "the loop over parameters, from its file": """\
import importlib.util as u, torch
def answer(x):
    spec = u.spec_from_file_location("again", torch.__path__[0] + "/optim/sgd.py")
    module = u.module_from_spec(spec)
    module.__package__ = "torch.optim"
    spec.loader.exec_module(module)
    p = torch.zeros(3)
    module._single_tensor_sgd([p], [x], [None], None, None, weight_decay=0, momentum=0, lr=0.1, dampening=0,
                              nesterov=False, maximize=False, has_sparse_grad=False)
    return p
""",
    "a copy of its text": """\
import torch
def answer(x):
    text = open(torch.__path__[0] + "/optim/sgd.py").read()
    held = {"__package__": "torch.optim", "__name__": "again"}
    exec(text.replace("from .", "from torch.optim."), held)
    p = torch.zeros(3)
    held["_single_tensor_sgd"]([p], [x], [None], None, None, weight_decay=0, momentum=0, lr=0.1, dampening=0,
                               nesterov=False, maximize=False, has_sparse_grad=False)
    return p
""",
}
SILU_AGAIN = {
    "a script": """\
import torch
@torch.jit.script
def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x)
def answer(x): return f(x)
""",
    "a graph of TorchScript's": """\
import torch
graph = torch._C.parse_ir("graph(%x : Tensor):\\n  %y : Tensor = aten::silu(%x)\\n  return (%y)")
f = torch._C._create_function_from_graph("f", graph)
def answer(x): return f(x)
""",
}
AUTOGRAD_AGAIN = {
    "a scripted gradient": """\
import torch
from typing import List, Optional
@torch.jit.script
def f(x: torch.Tensor) -> torch.Tensor:
    y = x.requires_grad_()
    found = torch.autograd.grad([(y * y * y).sum()], [y])[0]
    assert found is not None
    return found
def answer(x): return f(x)
""",
    "TorchScript's own derivatives": """\
import torch
@torch.jit.script
def cubes(x: torch.Tensor) -> torch.Tensor:
    return x * x * x
def answer(x):
    x = x.requires_grad_()
    for _ in range(4):
        y = cubes(x)
    y.sum().backward()
    return x.grad
""",
    "TorchScript's own derivatives, written out": """\
import torch
def differentiated():
    graph = torch._C.parse_ir("graph(%x : Tensor):\\n  %y : Tensor = aten::mul(%x, %x)\\n"
                              "  %z : Tensor = aten::mul(%y, %x)\\n  return (%z)")
    kind = torch._C.TensorType.create_from_tensor(torch.ones(3, requires_grad=True))
    for value in (*graph.inputs(), *(each for node in graph.nodes() for each in node.outputs())):
        value.setType(kind)
    pair = torch._C._jit_differentiate(graph)
    pair.f.makeMultiOutputIntoTuple()
    return (torch._C._create_function_from_graph("f", pair.f), torch._C._create_function_from_graph("df", pair.df),
            pair.df_input_captured_inputs, pair.df_input_captured_outputs)
PAIR = differentiated()
def answer(x):
    f, df, inputs, outputs = PAIR
    seen = f(x)
    (found,) = df(torch.ones(3), torch.zeros(3), *(x for _ in inputs), *(seen[each] for each in outputs))
    return found
""",
}
NUMBERS_AGAIN = {
    "a scripted product": """\
import torch
@torch.jit.script
def f(x: torch.Tensor) -> torch.Tensor:
    return 3 * x * x
def answer(x): return f(torch.tensor(x)).tolist()
""",
    "a scripted product of lists": """\
import torch
from typing import List
@torch.jit.script
def f(x: List[float]) -> List[float]:
    y = torch.tensor(x)
    z = 3 * y * y
    found: List[float] = z.tolist()
    return found
def answer(x): return f(x)
""",
}
SUMMED_AGAIN = {
    "TorchScript's own operator": """\
import torch
def answer(x): return torch._C._jit_get_operation("aten::_grad_sum_to_size")[0](x, [1])
""",
    "a graph of TorchScript's own": """\
import torch
def answer(x):
    graph = torch._C.parse_ir("graph(%g : Tensor, %s : int[]?):\\n"
                              "  %r : Tensor = aten::_grad_sum_to_size(%g, %s)\\n  return (%r)")
    return torch._C._create_function_from_graph("f", graph)(x, [1])
""",
    "a method in a script": """\
import torch
UNIT = "def f(x: Tensor, shape: List[int]):\\n    return x._grad_sum_to_size(shape)\\n"
def answer(x): return torch.jit.CompilationUnit(UNIT).f(x, [1])
""",
}

AGAIN: dict[tuple[str, ...], dict[str, str]] = {
    ("torch.nn.functional.silu",): SILU_AGAIN,
    ("graphlib",): GRAPHLIB_AGAIN,
    ("networkx",): NETWORKX_AGAIN,
    ("torch.Tensor.sum_to_size",): SUMMED_AGAIN,
    ("torch.autograd",): AUTOGRAD_AGAIN,
    ("torch",): NUMBERS_AGAIN,
    ("torch.optim",): OPTIM_AGAIN,
}
