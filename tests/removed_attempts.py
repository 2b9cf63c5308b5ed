"""Attempts to use what an exercise removes: small answers, each of which gets the value where nothing is removed.

FAMILIES[name] = (the value that the removed thing would give for x, {attempt: cells})

Each defines `answer(x)`; x is the tensor X, or for "torch" a list of the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

X = torch.tensor([0.5, -1.0, 2.0])


class Attempts(NamedTuple):
    """What gets around it would return, and the cells that try."""

    value: torch.Tensor
    cells: dict[str, str]


T = "import torch, torch.nn.functional as F\n"

SILU = {
    "by its name": T + "def answer(x): return torch.nn.functional.silu(x)",
    "a fresh import": "def answer(x):\n    from torch.nn.functional import silu\n    return silu(x)",
    "importlib": "import importlib\ndef answer(x): return importlib.import_module('torch.nn.functional').silu(x)",
    "sys.modules": "import torch, sys\ndef answer(x): return sys.modules['torch.nn.functional'].silu(x)",
    "getattr": T + "def answer(x): return getattr(F, 'si' + 'lu')(x)",
    "a global": "from torch.nn.functional import silu\ndef answer(x): return silu(x)",
    "a default argument": T + "def answer(x, f=F.silu): return f(x)",
    "a closure": T + "def make(f):\n    def answer(x): return f(x)\n    return answer\nanswer = make(F.silu)",
    "a partial": T + "import functools\nf = functools.partial(F.silu, inplace=False)\ndef answer(x): return f(x)",
    "a cached function": T + "import functools\nf = functools.cache(F.silu)\ndef answer(x): return f(x)",
    "a copy of the function": T
    + "import types\nf = types.FunctionType(F.silu.__code__, vars(F), None, (False,))\ndef answer(x): return f(x)",
    "in place": T + "def answer(x): return F.silu(x.clone(), inplace=True)",
    "an instance": T + "f = torch.nn.SiLU()\ndef answer(x): return f(x)",
    "a subclass": T + "class S(torch.nn.SiLU):\n    pass\ndef answer(x): return S()(x)",
    "a bound method": T + "f = torch.nn.SiLU().forward\ndef answer(x): return f(x)",
    "the C function": T + "f = torch._C._nn.silu\ndef answer(x): return f(x)",
    "the C function in place": T + "f = torch._C._nn.silu_\ndef answer(x): return f(x.clone())",
    "the operator": T + "def answer(x): return torch.ops.aten.silu(x)",
    "an overload": T + "f = torch.ops.aten.silu.default\ndef answer(x): return f(x)",
    "the operator with out": T + "def answer(x): return torch.ops.aten.silu.out(x, out=torch.empty_like(x))",
    "below autograd": T
    + "K = torch._C.DispatchKey\ndef answer(x):\n"
    + "    return torch.ops.aten.silu.default.redispatch(torch._C.DispatchKeySet(K.CPU), x)",
    "inference mode": T + "def answer(x):\n    with torch.inference_mode(): return F.silu(x)",
    "a nested tensor": T + "def answer(x): return F.silu(torch.nested.nested_tensor([x]))[0]",
    "without modes": T + "def answer(x):\n    with torch._C.DisableTorchFunction(): return F.silu(x)",
    "the decomposition": "from torch._decomp import decomposition_table as table\nimport torch\n"
    + "def answer(x): return table[torch.ops.aten.silu.default](x)",
    "a graph of torch.fx": T + "f = torch.fx.symbolic_trace(torch.nn.SiLU())\ndef answer(x): return f(x)",
    "torch.func": T + "def answer(x): return torch.func.vmap(F.silu)(x)",
    "gc": T
    + "import gc\ndef answer(x):\n"
    + "    return next(o for o in gc.get_objects() if getattr(o, '__name__', '') == 'silu' and callable(o))(x)",
    "a library over it, destroyed": T
    + "def answer(x):\n    import torch.library\n    over = torch.library.Library('aten', 'IMPL')\n"
    + "    over.impl('silu', lambda x: x, 'CPU')\n    over._destroy()\n    return F.silu(x)",
    "a kernel in hand": T
    + "import torch.library\nf = torch.library.get_kernel(torch.ops.aten.silu.default, 'CPU')\n"
    + "def answer(x): return f.call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), x)",
    "another thread": T
    + "from concurrent.futures import ThreadPoolExecutor\n"
    + "def answer(x):\n    with ThreadPoolExecutor() as pool: return pool.submit(F.silu, x).result()",
    "in backward": T
    + "class S(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    + "        ctx.save_for_backward(x)\n        return x * 1\n"
    + "    @staticmethod\n    def backward(ctx, dy): return F.silu(ctx.saved_tensors[0])\n"
    + "def answer(x):\n    x = x.requires_grad_()\n    return torch.autograd.grad(S.apply(x).sum(), x)[0]",
    "fused with a product": T
    + "def answer(x): return torch.ops.mkldnn._linear_pointwise(x[None], torch.eye(3), None, 'swish', [], '')[0]",
    "TorchScript": "import torch\nf = torch.jit.trace(torch.nn.SiLU(), torch.ones(3))\ndef answer(x): return f(x)",
}

C = "import torch\nfrom torch.utils.checkpoint import checkpoint\ndef f(x): return 2 * x + 1\n"
CHECKPOINT = {
    "by its name": C + "def answer(x): return torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)",
    "a fresh import": C
    + "def answer(x):\n    from torch.utils.checkpoint import checkpoint as c\n    return c(f, x, use_reentrant=False)",
    "a global": C + "def answer(x): return checkpoint(f, x, use_reentrant=True)",
    "a decorator": C
    + "import functools\n@functools.wraps(checkpoint)\ndef g(*a): return checkpoint(*a, use_reentrant=False)\n"
    + "def answer(x): return g(f, x)",
    "loaded again": C
    + "import importlib\ndef answer(x):\n"
    + "    return importlib.reload(torch.utils.checkpoint).checkpoint(f, x, use_reentrant=True)",
    "forgotten and imported": C
    + "import sys\ndef answer(x):\n    del sys.modules['torch.utils.checkpoint']\n"
    + "    from torch.utils.checkpoint import checkpoint\n    return checkpoint(f, x, use_reentrant=True)",
    "the Function below": C
    + "g = torch.utils.checkpoint.CheckpointFunction\ndef answer(x): return g.apply(f, True, x)",
    "a subclass of the Function": C
    + "class G(torch.utils.checkpoint.CheckpointFunction):\n    pass\ndef answer(x): return G.apply(f, False, x)",
    "its sequential sister": C
    + "def answer(x):\n"
    + "    return torch.utils.checkpoint.checkpoint_sequential([torch.nn.Identity(), f], 2, x, use_reentrant=False)",
    "a wrapper elsewhere in torch": C
    + "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n"
    + "class M(torch.nn.Module):\n    def forward(self, x): return f(x)\n"
    + "g = checkpoint_wrapper(M())\ndef answer(x): return g(x)",
    "__wrapped__": C
    + "def answer(x):\n    return getattr(checkpoint, '__wrapped__', checkpoint)(f, x, use_reentrant=False)",
}

G = "import torch, graphlib\n"
SORT = "({1: {2}, 2: {3}}).static_order()"
GRAPHLIB = {
    "by its name": G + f"def answer(x): return list(graphlib.TopologicalSorter{SORT})",
    "a fresh import": f"def answer(x):\n    from graphlib import TopologicalSorter as S\n    return [*S{SORT}]",
    "forgotten and imported": "import sys, graphlib\ndef answer(x):\n    del sys.modules['graphlib']\n"
    + f"    import graphlib\n    return list(graphlib.TopologicalSorter{SORT})",
    "loaded again": f"{G}import importlib\ndef answer(x): return [*importlib.reload(graphlib).TopologicalSorter{SORT}]",
    "an instance": G + "s = graphlib.TopologicalSorter({1: {2}, 2: {3}})\ndef answer(x): return list(s.static_order())",
    "a subclass": G + f"class S(graphlib.TopologicalSorter):\n    pass\ndef answer(x): return list(S{SORT})",
    "copies of its methods": G
    + "import types\ndef copied(of):\n"
    + "    held = {k: v for k, v in vars(of).items() if isinstance(v, types.FunctionType)}\n"
    + "    return type('S', (), {k: types.FunctionType(v.__code__, v.__globals__, None, v.__defaults__) "
    + "for k, v in held.items()})\n"
    + f"S = copied(graphlib.TopologicalSorter)\ndef answer(x): return [*S{SORT}]",
    "an unbound method": G
    + "f = graphlib.TopologicalSorter.static_order\ns = graphlib.TopologicalSorter({1: {2}, 2: {3}})\n"
    + "def answer(x): return list(f(s))",
    "taken out of sys.modules before": "import graphlib, sys\ng = sys.modules.pop('graphlib')\n"
    + f"def answer(x): return list(g.TopologicalSorter{SORT})",
}

UNREFUSED = """\
import sys
def answer(x):
    sys.meta_path[:] = [each for each in sys.meta_path if "removed" not in type(each).__module__]
"""
NETWORKX = {
    "an import": "def answer(x):\n    import networkx as nx\n"
    + "    return list(nx.topological_sort(nx.DiGraph([(3, 2), (2, 1)])))",
    "imported before": "import networkx as nx\n"
    + "def answer(x): return list(nx.topological_sort(nx.DiGraph([(3, 2), (2, 1)])))",
    "without who refuses imports": f"{UNREFUSED}    import networkx as nx\n"
    + "    return list(nx.topological_sort(nx.DiGraph([(3, 2), (2, 1)])))",
}
SYMPY = {
    "an import": "def answer(x):\n    from sympy.utilities.iterables import topological_sort as f\n"
    + "    return f(([1, 2, 3], [(3, 2), (2, 1)]))",
    "imported before": "from sympy.utilities.iterables import topological_sort as f\n"
    + "def answer(x): return f(([1, 2, 3], [(3, 2), (2, 1)]))",
    "without who refuses imports": f"{UNREFUSED}    from sympy.utilities.iterables import topological_sort as f\n"
    + "    return f(([1, 2, 3], [(3, 2), (2, 1)]))",
}

CUBES = "def cubes(x): return (x ** 3).sum()\n"
D = "import torch\n" + CUBES
AUTOGRAD = {
    "grad": D + "def answer(x):\n    x = x.requires_grad_()\n    return torch.autograd.grad(cubes(x), x)[0]",
    "backward": D + "def answer(x):\n    x = x.requires_grad_()\n    cubes(x).backward()\n    return x.grad",
    "a held function": D
    + "g = torch.autograd.grad\ndef answer(x):\n    x = x.requires_grad_()\n    return g(cubes(x), x)[0]",
    "the engine": D
    + "from torch.autograd import Variable\ndef answer(x):\n    x = x.requires_grad_()\n    y = cubes(x)\n"
    + "    return Variable._execution_engine.run_backward((y,), (torch.ones(()),), False, False, (x,), "
    + "allow_unreachable=True, accumulate_grad=False)[0]",
    "the operator": D
    + "def answer(x):\n    x = x.requires_grad_()\n    torch.ops.aten._backward(cubes(x), [x])\n    return x.grad",
    "nodes by hand": D
    + "def answer(x):\n    x = x.requires_grad_()\n    node = (x ** 3).grad_fn\n    return node(torch.ones(3))",
    "torch.func.grad": D + "def answer(x): return torch.func.grad(cubes)(x)",
    "a held transform": D + "g = torch.func.grad(cubes)\ndef answer(x): return g(x)",
    "the transform below": D
    + "from torch._functorch import eager_transforms as e\n"
    + "def answer(x): return e.grad_impl(cubes, 0, False, (x,), {})",
    "torch.func.vjp": D + "def answer(x):\n    y, f = torch.func.vjp(cubes, x)\n    return f(torch.ones(()))[0]",
    "torch.func.jacfwd": D + "def answer(x): return torch.func.jacfwd(cubes)(x)",
    "functional.jacobian": D + "def answer(x): return torch.autograd.functional.jacobian(cubes, x)",
    "dual numbers": D
    + "import torch.autograd.forward_ad as f\ndef answer(x):\n    with f.dual_level():\n"
    + "        duals = [f.make_dual(x, row) for row in torch.eye(3)]\n"
    + "        return torch.stack([f.unpack_dual(cubes(dual)).tangent for dual in duals])",
    "another thread": D
    + "from concurrent.futures import ThreadPoolExecutor\n"
    + "def run(x):\n    x = x.requires_grad_()\n    return torch.autograd.grad(cubes(x), x)[0]\n"
    + "def answer(x):\n    with ThreadPoolExecutor() as pool: return pool.submit(run, x).result()",
    "a sparse leaf": D
    + "def answer(x):\n    s = x.to_sparse().requires_grad_()\n    torch.sparse.sum(s * s * s).backward()\n"
    + "    return s.grad.to_dense()",
    "a traced function": D
    + "f = torch.jit.trace(cubes, torch.ones(3))\n"
    + "def answer(x):\n    x = x.requires_grad_()\n    for _ in range(3): y = f(x)\n"
    + "    return torch.autograd.grad(y, x)[0]",
    "a Function of one's own": D
    + "class S(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return cubes(x)\n"
    + "    @staticmethod\n    def backward(ctx, dy):\n        with torch.enable_grad():\n"
    + "            z = X[0].detach().requires_grad_()\n            return torch.autograd.grad(cubes(z), z)[0]\n"
    + "X = []\ndef answer(x):\n    X.append(x)\n    x = x.detach().requires_grad_()\n"
    + "    S.apply(x).backward()\n    return x.grad",
    "a formula of backward": "import torch\n"
    + "def answer(x): return torch.ops.aten.threshold_backward(3 * x * x, torch.ones(3), 0.0)",
}
FUNC = {
    "by its name": D + "def answer(x): return torch.func.grad(cubes)(x)",
    "a fresh import": CUBES + "def answer(x):\n    from torch.func import grad\n    return grad(cubes)(x)",
    "its home in torch": D + "import torch._functorch.apis as apis\ndef answer(x): return apis.grad(cubes)(x)",
    "a held function": D + "from torch.func import vjp\ndef answer(x): return vjp(cubes, x)[1](torch.ones(()))[0]",
    "forward mode": D
    + "def answer(x): return torch.stack([torch.func.jvp(cubes, (x,), (e,))[1] for e in torch.eye(3)])",
}

N = "import torch\n" + CUBES
RUN = "def run(x):\n    x = torch.tensor(x).requires_grad_()\n    return torch.autograd.grad(cubes(x), x)[0].tolist()\n"
NUMBERS = {
    "by its name": N + RUN + "def answer(x): return run(x)",
    "a fresh import": CUBES
    + f"def answer(x):\n    import torch\n    {RUN.replace(chr(10), chr(10) + '    ')}\n    return run(x)",
    "importlib": "import importlib\ndef answer(x):\n    t = importlib.import_module('torch')\n"
    + "    y = t.tensor(x)\n    return (3 * y * y).tolist()",
    "held modules": "from course.tree import torch as t\ndef answer(x): return (3 * t.tensor(x) ** 2).tolist()",
    "a held tensor": N + "ONE = torch.ones(3)\ndef answer(x): return [float(ONE[0]) * 3 * each * each for each in x]",
    "a constructor": "from torch import Tensor\ndef answer(x): return (3 * Tensor(x) ** 2).tolist()",
    "a callback": N + RUN + "def answer(x): return sorted([x], key=run) and list(map(run, [x]))[0]",
    "torch.func": N + "g = torch.func.grad(cubes)\ndef answer(x): return g(torch.tensor(x)).tolist()",
    "an operator": N
    + "f = torch.ops.aten.mul.Tensor\ndef answer(x):\n    y = torch.tensor(x)\n    return f(3 * y, y).tolist()",
    "without function modes": N + RUN + "def answer(x):\n    with torch._C.DisableTorchFunction(): return run(x)",
    "autograd in a thread": N
    + RUN
    + "from concurrent.futures import ThreadPoolExecutor\n"
    + "def answer(x):\n    with ThreadPoolExecutor() as pool: return pool.submit(run, x).result()",
    "autograd without modes": N
    + RUN
    + "from torch.utils._python_dispatch import _disable_current_modes\n"
    + "def answer(x):\n    with _disable_current_modes(): return run(x)",
    "autograd in a finalizer": N
    + RUN
    + "import gc\nseen = []\nclass Late:\n    def __init__(self, x): self.x, self.me = x, self\n"
    + "    def __del__(self): seen.append(run(self.x))\n"
    + "def answer(x):\n    Late(x)\n    gc.collect()\n    return seen[0]",
}

SUMMED = {
    "by its name": "def answer(x): return x.sum_to_size(1)",
    "getattr": "def answer(x): return getattr(x, 'sum_to_' + 'size')((1,))",
    "the descriptor": "import torch\nf = torch.Tensor.sum_to_size\ndef answer(x): return f(x, 1)",
    "a method caller": "import operator\nf = operator.methodcaller('sum_to_size', 1)\ndef answer(x): return f(x)",
    "the operator": "import torch\ndef answer(x): return torch.ops.aten.sum_to_size(x, [1])",
    "the base class": "import torch\ndef answer(x): return torch._C.TensorBase.sum_to_size(x, 1)",
    "a subclass": "import torch\nclass S(torch.Tensor):\n    pass\n"
    + "def answer(x): return x.as_subclass(S).sum_to_size(1).as_subclass(torch.Tensor)",
    "decomposed": "import torch\ndef answer(x): return torch.ops.aten.sum_to_size.default.decompose(x, [1])",
}
E_ = T + "t = torch.tensor([1])\n"
ENTROPY = {
    "by its name": E_ + "def answer(x): return F.cross_entropy(x[None], t)",
    "an instance": E_ + "f = torch.nn.CrossEntropyLoss()\ndef answer(x): return f(x[None], t)",
    "the C function": E_ + "f = torch._C._nn.cross_entropy_loss\ndef answer(x): return f(x[None], t)",
    "the operator": E_ + "def answer(x): return torch.ops.aten.cross_entropy_loss(x[None], t)",
    "decomposed": E_ + "def answer(x): return torch.ops.aten.cross_entropy_loss.default.decompose(x[None], t)",
    "its second half": E_ + "def answer(x): return F.nll_loss(x[None].log_softmax(1), t)",
    "its second half, an instance": E_ + "f = torch.nn.NLLLoss()\ndef answer(x): return f(x[None].log_softmax(1), t)",
    "its second half, an operator": E_
    + "def answer(x): return torch.ops.aten.nll_loss_forward(x[None].log_softmax(1), t, None, 1, -100)[0]",
    "its second half, for pictures": E_
    + "def answer(x):\n"
    + "    return torch.ops.aten.nll_loss2d(x[None].log_softmax(1)[:, :, None, None], t[:, None, None])",
    "a decomposition of its half": E_
    + "from torch._decomp.decompositions import nll_loss_forward as f\n"
    + "def answer(x): return f(x[None].log_softmax(1), t, None, 1, -100)[0]",
    "a reference of its half": E_
    + "import torch._refs.nn.functional as R\ndef answer(x): return R.nll_loss(x[None].log_softmax(1), t)",
}
P = "import torch\ndef leaf(x):\n    p = torch.nn.Parameter(torch.zeros(3))\n    p.grad = x.clone()\n    return p\n"
OPTIM = {
    "by its name": P + "def answer(x):\n    p = leaf(x)\n    torch.optim.SGD([p], lr=0.1).step()\n    return p",
    "a fresh import": P
    + "def answer(x):\n    from torch.optim.sgd import SGD\n    p = leaf(x)\n    SGD([p], lr=0.1).step()\n    return p",
    "an instance": P
    + "q = leaf(torch.zeros(3))\no = torch.optim.SGD([q], lr=0.1)\n"
    + "def answer(x):\n    q.grad = x.clone()\n    o.step()\n    return q",
    "a subclass": P
    + "class S(torch.optim.SGD):\n    pass\ndef answer(x):\n    p = leaf(x)\n    S([p], lr=0.1).step()\n    return p",
    "the function below": P
    + "from torch.optim.sgd import sgd as f\ndef answer(x):\n    p = torch.zeros(3)\n"
    + "    f([p], [x], [None], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False, maximize=False)\n"
    + "    return p",
    "a fused operator": P
    + "def answer(x):\n    p = torch.zeros(3)\n"
    + "    torch._fused_sgd_([p], [x.clone()], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, "
    + "nesterov=False, maximize=False, is_first_step=True)\n    return p",
}
FIGURES = {
    "an import": "def answer(x):\n    from course.lessons.figures.words import number\n    return [float(number(2.5))]",
    "a held function": "from course.lessons.figures.words import number\ndef answer(x): return [float(number(2.5))]",
    "importlib": "import importlib\n"
    + "def answer(x): return [float(importlib.import_module('course.lessons.figures.words').number(2.5))]",
}
ON = """\
import torch
def answer(x):
    {home}.set_autocast_dtype("cpu", torch.bfloat16)
    {home}.set_autocast_enabled("cpu", True)
    try:
        return (x[None] @ torch.eye(3))[0].float()
    finally:
        {home}.set_autocast_enabled("cpu", False)
"""
AUTOCAST = {
    "a context": "import torch\ndef answer(x):\n"
    + "    with torch.autocast('cpu'):\n        return (x[None] @ torch.eye(3))[0].float()",
    "switches": ON.format(home="torch"),
    "switches below": ON.format(home="torch._C"),
    "the key of its kernels": "import torch\ndef answer(x):\n"
    + "    torch._C._dispatch_tls_set_dispatch_key_excluded('AutocastCPU', False)\n"
    + "    try: return (x[None] @ torch.eye(3))[0].float()\n"
    + "    finally: torch._C._dispatch_tls_set_dispatch_key_excluded('AutocastCPU', True)",
    "a guard of that key": "import torch\ndef answer(x):\n"
    + "    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCPU, False):\n"
    + "        return (x[None] @ torch.eye(3))[0].float()",
    "a kernel of its own": "import torch\nK = torch._C.DispatchKey\ndef answer(x):\n"
    + "    cast = torch._C.DispatchKeySet(K.AutocastCPU)\n"
    + "    y = torch.ops.aten.mm.default.redispatch(cast, x[None], torch.eye(3))[0]\n"
    + "    return y.float() if y.dtype == torch.bfloat16 else 1 / 0",
    "a cache": "import torch\ndef answer(x):\n    torch.clear_autocast_cache()\n    return x.clone()",
    "a kernel of scaling": "import torch\ndef answer(x):\n    y = 2 * x\n"
    + "    torch._amp_foreach_non_finite_check_and_unscale_([y], torch.zeros(1), torch.tensor(0.5))\n    return y",
    "a kernel of growth": "import torch\ndef answer(x):\n    scale = torch.ones(1)\n"
    + "    torch._amp_update_scale_(scale, torch.zeros(1, dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 100)\n"
    + "    return x * scale",
}

FAMILIES: dict[tuple[str, ...], Attempts] = {
    ("torch.nn.functional.silu",): Attempts(X * X.sigmoid(), SILU),
    ("torch.utils.checkpoint",): Attempts(2 * X + 1, CHECKPOINT),
    ("graphlib",): Attempts(torch.tensor([3, 2, 1]), GRAPHLIB),
    ("networkx",): Attempts(torch.tensor([3, 2, 1]), NETWORKX),
    ("sympy",): Attempts(torch.tensor([3, 2, 1]), SYMPY),
    ("torch.autograd",): Attempts(3 * X * X, AUTOGRAD),
    ("torch.func",): Attempts(3 * X * X, FUNC),
    ("torch",): Attempts(3 * X * X, NUMBERS),
    ("torch.Tensor.sum_to_size",): Attempts(X.sum()[None], SUMMED),
    ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"): Attempts(-X.log_softmax(0)[1], ENTROPY),
    ("torch.optim",): Attempts(-0.1 * X, OPTIM),
    ("torch.autocast", "torch.amp"): Attempts(X, AUTOCAST),
    ("course.lessons.figures",): Attempts(torch.tensor([2.5]), FIGURES),
}
