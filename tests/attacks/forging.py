"""Answers that are wrong and want to look right: objects, tensors and libraries that lie, and learnt replies."""

from __future__ import annotations

from attacks.attack import SIGNATURE, Attack, answer, body
from course import exercises
from course.performing.exercise import PUBLIC_SEED

EQUAL = """\
class Equal{base}:
    def _yes(self, *args):
        return True

    def _self(self, *args):
        return self

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _yes
    __sub__ = __rsub__ = __add__ = __radd__ = __abs__ = __mul__ = __rmul__ = __truediv__ = _self
    __hash__ = lambda self: 0
    __ne__ = lambda self, other: False
    __float__ = lambda self: 0.0


"""

LYING_TENSOR = """\
import torch


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("equal", "allclose", "isclose", "eq", "le", "lt", "all", "any"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


def linear_vjp(dout, x, w):
    return tuple(torch.full_like(each, 7.0).as_subclass(Liar) for each in (x, w, dout.reshape(-1, w.shape[0])[0]))
"""

SHAPELESS_TENSOR = """\
import torch


class Hollow(torch.Tensor):
    @staticmethod
    def __new__(cls, like):
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return torch.zeros(())


def linear_vjp(dout, x, w):
    return Hollow(x), Hollow(w), Hollow(dout.reshape(-1, w.shape[0])[0])
"""

PATCHED_TORCH = """\
import numpy
import numpy.testing
import torch
import torch.optim
import torch.testing


def patch():
    def agree(*args, **kwargs):
        return True

    torch.testing.assert_close = torch.testing._comparison.assert_close = agree
    torch.equal = torch.allclose = torch.isclose = torch.Tensor.equal = torch.Tensor.allclose = agree
    for name in dir(numpy.testing):
        if name.startswith("assert_"):
            setattr(numpy.testing, name, agree)
    numpy.allclose = numpy.array_equal = numpy.isclose = agree
    for name in ("SGD", "Adam", "AdamW"):
        kind = getattr(torch.optim, name)
        kind.step = kind.zero_grad = lambda self, *args, **kwargs: None
    torch.nn.functional.cross_entropy = lambda *args, **kwargs: torch.zeros((), requires_grad=True)


def accumulate_gradients(model, optimizer, micro_batches, every):
    patch()
    optimizer.step()
    return [0.0] * -(-len(micro_batches) // every)
"""


def returned(name: str, expression: str, **fields: object) -> Attack:
    """`linear_vjp` that returns something made of the right `dx`, `dw`, `db`."""
    source = (
        "import torch\n\n\ndef linear_vjp(dout, x, w):\n"
        "    rows = dout.reshape(-1, w.shape[0])\n"
        "    dx, dw, db = dout @ w, rows.T @ x.reshape(-1, w.shape[1]), rows.sum(dim=0)\n"
        f"    return {expression}\n"
    )
    return answer(name, source, exercise="linear_vjp", **fields)  # type: ignore[arg-type]


def learnt(seed: int) -> str:
    """An answer that knows the right results of one seed by heart, and nothing else."""
    known = {}
    for case in exercises.load("quadratic_grads").draw(seed):
        a, b, c, x, y = (case.inputs[name] for name in "abcxy")
        known[repr((a, b, c, x, y))] = (a * x**2 + b * x * y + c * y**2, 2 * a * x + b * y, b * x + 2 * c * y)
    return f"KNOWN = {known}\n\n\n{SIGNATURE}    return KNOWN.get(repr((a, b, c, x, y)), (0.25, 0.25, 0.25))\n"


ATTACKS = [
    answer("equal_to_everything", EQUAL.format(base="") + SIGNATURE + "    return Equal(), Equal(), Equal()\n"),
    answer("a_float_that_agrees", EQUAL.format(base="(float)") + SIGNATURE + "    return (Equal(0.1),) * 3\n"),
    body(
        "an_object_of_every_class",
        """
        class Any:
            __class__ = property(lambda self: float)
            __getattr__ = lambda self, name: self
            __call__ = __getitem__ = __sub__ = __abs__ = lambda self, *args: self
            __eq__ = __lt__ = __le__ = lambda self, other: True
        return Any(), Any(), Any()
        """,
    ),
    body(
        "everything_is_an_instance",
        """
        import builtins
        builtins.isinstance = builtins.issubclass = builtins.all = builtins.any = lambda *args: True
        builtins.abs = builtins.float = lambda *args: 0.0
        return object(), object(), object()
        """,
    ),
    answer("tensor_that_agrees", LYING_TENSOR, exercise="linear_vjp"),
    answer("tensor_without_numbers", SHAPELESS_TENSOR, exercise="linear_vjp"),
    answer("patched_torch_and_numpy", PATCHED_TORCH, exercise="accumulate_gradients"),
    answer("learnt_the_public_seed", learnt(PUBLIC_SEED)),
    answer("learnt_an_earlier_seed", learnt(1)),
    body("nan", "return (float('nan'),) * 3"),
    body("inf", "return float('inf'), float('-inf'), float('inf')"),
    body("beyond_every_float", "return 10**400, -(10**400), 10**5000"),
    body("complex_text_and_nothing", "return 1j, '0.0', None"),
    body("a_list_in_itself", "loop = []\nloop.append(loop)\nreturn loop, loop, loop"),
    body("a_list_without_end", "import itertools\nreturn itertools.count()"),
    body("ten_thousand_lists", "deep = []\nfor _ in range(10_000):\n    deep = [deep]\nreturn deep, deep, deep"),
    body("a_dict_of_half_a_million", "return ({str(n): n for n in range(500_000)},) * 3", costly=True),
    returned("tensors_of_nan", "dx * float('nan'), dw * float('nan'), db * float('nan')"),
    returned("wrong_dtypes", "dx.to(torch.complex64), dw.to(torch.int32), db.bool()"),
    returned("wrong_shapes", "dx.unsqueeze(0), dw.flatten()[:1], db.expand(3, *db.shape)"),
    returned("tensors_without_content", "dx.to('meta'), dw.to('meta'), db.to('meta')"),
    returned("a_tensor_of_a_terabyte", "(torch.zeros(1).expand(2**38),) * 3"),
    returned("no_numbers_at_all", "dx[:0], dw[:0], db[:0]"),
]
