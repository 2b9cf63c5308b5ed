"""Right and wrong ways to write `Autocast`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.autocast_lists import HIGH, LOW, WIDEST
from course.performing.exercise import Answer
from course.reference.mixed_precision.autocast import Autocast


class TorchsOwn:
    """torch.autocast on the CPU, whose list has the products of the cases too, casts and caches for them; for the
    other operators it is switched off.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __enter__(self) -> TorchsOwn:
        self.region = torch.autocast("cpu", self.dtype)
        self.region.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self.region.__exit__(*error)

    def run(self, op: Callable[..., Any], *args: Any) -> Any:
        """The operator where autocast is on for LOW, and off for the others."""
        if op.__name__ in LOW:
            return op(*args)
        floats = [a for a in args if isinstance(a, Tensor) and a.is_floating_point() and a.dtype != torch.float64]
        wide = op.__name__ in HIGH or (op.__name__ in WIDEST and any(a.dtype == torch.float32 for a in floats))
        chosen = {id(a) for a in floats} if wide else set()
        with torch.autocast("cpu", enabled=False):
            return op(*(a.float() if id(a) in chosen else a for a in args))


class WithAList:
    """Casts as a list of pairs that is searched by `is`; promotion as torch.promote_types; a new list for each pass."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.casts = dtype, []  # type: ignore[var-annotated]

    def __enter__(self) -> WithAList:
        self.casts = []
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.casts = []

    def run(self, op: Callable[..., Any], *args: Any) -> Any:
        """Finds the target among those of the operator's list."""
        mine = (torch.float16, torch.bfloat16, torch.float32)
        dtypes = [a.dtype for a in args if isinstance(a, Tensor) and a.dtype in mine]
        widest = self.dtype
        for dtype in dtypes:
            widest = torch.promote_types(widest, dtype)
        targets = {
            **dict.fromkeys(LOW, self.dtype),
            **dict.fromkeys(HIGH, torch.float32),
            **dict.fromkeys(WIDEST, widest),
        }
        target = targets.get(op.__name__)
        given = []
        for a in args:
            if target is None or not isinstance(a, Tensor) or a.dtype not in mine:
                given.append(a)
            elif a.dtype == torch.float32 and target != torch.float32 and a.is_leaf and a.requires_grad:
                given.append(self.once(a))
            else:
                given.append(a.to(target))
        return op(*given)

    def once(self, weight: Tensor) -> Tensor:
        """The cast of a weight."""
        for known, half in self.casts:
            if known is weight:
                return half  # type: ignore[no-any-return]
        with torch.enable_grad():
            half = weight.to(self.dtype)
        self.casts.append((weight, half))
        return half


RIGHT = (right(TorchsOwn, independent="torch.autocast on the CPU"), right(WithAList))

cast = partial(edited, Autocast)

WEIGHT = "if not (tensor.is_leaf and tensor.requires_grad and tensor.dtype == torch.float32):"
RECORDED = "with torch.enable_grad():  # the first use may be an evaluation, the next one is not"
LOOKED_UP = "if tensor not in self._casts:"
CAST = "self._casts[tensor] = tensor.to(target)"
KNOWN = "return self._casts[tensor]"
FLOATING = "return isinstance(arg, Tensor) and arg.is_floating_point() and arg.dtype != torch.float64"
CLEAR = "self._casts.clear()  # the optimizer is about to change the weights"
HIGH_TARGET = "if name in HIGH:\n            return torch.float32"
CALLED = "return op(*(self._cast(arg, target) if _eligible(arg) else arg for arg in args))"
PROMOTED = "torch.float32 if any(_eligible(arg) and arg.dtype == torch.float32 for arg in args) else self.dtype"
DOUBLES = "(_eligible(arg) or doubles and isinstance(arg, Tensor) and arg.is_floating_point())"
DOUBLE_RESULT = "target == torch.float32 and y.is_floating_point()"
WIDE = "isinstance(arg, Tensor) and arg.dtype in (torch.float32, torch.float64)"
FIRST_TWO = "[each for each in args if isinstance(each, Tensor)][:2]"
HALVES = "[each.to(self.dtype) if each.dtype == torch.float32 else each for each in arg]"
WIDEST_SIZE = """{2: self.dtype, 4: torch.float32}.get(
                max(arg.itemsize for arg in args if isinstance(arg, Tensor) and arg.is_floating_point())
            )"""
ROUNDED = "tensor.copy_(tensor.to(target))\n            return tensor.to(target)\n"


def looked_up_by(key: str) -> Answer:
    """A cast is kept under this key, in the place of the tensor itself."""
    return cast(
        (LOOKED_UP, f"if ({key}) not in self._casts:"),
        (CAST, f"self._casts[{key}] = tensor.to(target)"),
        (KNOWN, f"return self._casts[{key}]"),
    )


WRONG = (
    wrong(
        "all_low",
        "You cast for every operator, or for operators in HIGH too, to half precision. Sums, exponentials and losses "
        "need float32: find the operator's name in the three lists.",
        cast((HIGH_TARGET, "if name in HIGH:\n            return self.dtype")),
        cast(("if name in LOW:", "if True:")),
        cast(("if name in LOW:", "if name in LOW or name in HIGH:")),
    ),
    wrong(
        "nothing_low",
        "Products run in the precision in which their inputs come. Cast the floating tensors of an operator in LOW "
        "to the dtype of the constructor.",
        cast(("return self.dtype\n        if name in HIGH", "return None\n        if name in HIGH")),
        cast(("return self.dtype\n        if name in HIGH", "return torch.float32\n        if name in HIGH")),
    ),
    wrong(
        "one_half_for_all",
        "You cast to one half precision whatever the constructor was given. Use its dtype.",
        cast(("self.dtype = dtype", "self.dtype = torch.float16")),
        cast(("self.dtype = dtype", "self.dtype = torch.bfloat16")),
    ),
    wrong(
        "high_as_they_come",
        "Operators in HIGH run on half precision where that comes in. Cast their floating tensors to float32.",
        cast((HIGH_TARGET, "if name in HIGH:\n            return None")),
    ),
    wrong(
        "result_back_to_half",
        "You round the result of an operator in HIGH to half precision again. It stays in float32: what comes after "
        "decides for itself.",
        cast(
            (
                CALLED,
                "y = op(*(self._cast(arg, target) if _eligible(arg) else arg for arg in args))\n"
                "        return y.to(self.dtype) if target == torch.float32 and _eligible(y) else y",
            )
        ),
        cast(
            (
                CALLED,
                "y = op(*(self._cast(arg, target) if _eligible(arg) else arg for arg in args))\n"
                "        halves = any(_eligible(arg) and arg.dtype == self.dtype for arg in args)\n"
                "        return y.to(self.dtype) if halves and _eligible(y) else y",
            )
        ),
    ),
    wrong(
        "only_the_first",
        "Only the first tensor of an operator is cast. Weights, biases and targets of losses are inputs too.",
        cast(
            (
                "op(*(self._cast(arg, target) if _eligible(arg) else arg for arg in args))",
                "op(self._cast(args[0], target) if _eligible(args[0]) else args[0], *args[1:])",
            )
        ),
    ),
    wrong(
        "promotes_to_low",
        "Where an operator in WIDEST gets half precision and float32, you make both half precision. What float32 "
        "holds is lost: cast to the wider one.",
        cast((PROMOTED, "self.dtype")),
        cast((PROMOTED, PROMOTED.replace("any(_eligible(arg) and", "all(not _eligible(arg) or"))),
    ),
    wrong(
        "promotes_to_the_first",
        "For an operator in WIDEST you look at its first tensor, at the first two, or at the first and the last. Look "
        "at all of them: float32 may come anywhere.",
        cast((PROMOTED, "args[0].dtype if _eligible(args[0]) else None")),
        *(
            cast((PROMOTED, PROMOTED.replace("in args", f"in {some}").replace("self.dtype", "None")))
            for some in (FIRST_TWO, f"({FIRST_TWO}[0], {FIRST_TWO.replace(':2', '-1')})")
        ),
    ),
    wrong(
        "promotes_as_torch_does",
        "You ask for the widest dtype of all, or for torch.result_type. float64 is wider than float32, so that nothing "
        "is cast; and result_type does not count a tensor of no dimensions beside others. Ask whether any tensor is in "
        "float32.",
        cast((PROMOTED, WIDEST_SIZE)),
        cast((PROMOTED, PROMOTED.replace("arg.dtype ==", "torch.result_type(args[0], arg) =="))),
        cast((PROMOTED, f"torch.float32 if torch.result_type(*{FIRST_TWO}) == torch.float32 else None")),
        cast((PROMOTED, PROMOTED.replace("_eligible(arg) and arg.dtype == torch.float32", WIDE))),
    ),
    wrong(
        "widest_always_float32",
        "You cast for an operator in WIDEST to float32 also where all its tensors are in half precision. They agree "
        "already.",
        cast((PROMOTED, "torch.float32")),
    ),
    wrong(
        "widest_left_out",
        "You left WIDEST out. Some of these operators raise an error where their inputs have two dtypes.",
        cast((PROMOTED, "None")),
    ),
    wrong(
        "unlisted_cast",
        "An operator in no list is none of your business: relu or a maximum is as good in half precision as in "
        "float32, and torch itself promotes where it must.",
        cast(("        return None", "        return torch.float32")),
        cast(("        return None", "        return self.dtype")),
        cast(("op.__name__", "op.__name__.rstrip('_')")),
    ),
    wrong(
        "targets_cast",
        "You cast integers or booleans too. A class number is no measurement: cross_entropy looks it up, and a sum of "
        "integers is exact. Ask is_floating_point.",
        cast((FLOATING, "return isinstance(arg, Tensor) and arg.dtype != torch.float64")),
        cast(
            (
                FLOATING,
                FLOATING.replace("arg.is_floating_point()", "(arg.dtype == torch.bool or arg.is_floating_point())"),
            )
        ),
    ),
    wrong(
        "one_number_left",
        "You leave a tensor of one number, without dimensions, as it is. It is cast like any other.",
        cast(
            (
                "if target is None or tensor.dtype == target:",
                "if target is None or target == tensor.dtype or not tensor.dim():",
            )
        ),
    ),
    wrong(
        "lists_cast",
        "You cast tensors inside lists or tuples. The docstring leaves alone what is no tensor itself.",
        *(
            cast(
                (
                    CALLED,
                    "return op(*(self._each(arg, target) for arg in args))\n\n"
                    "    def _each(self, arg: Any, target: torch.dtype | None) -> Any:\n"
                    f"        if isinstance(arg, {kinds}):\n"
                    "            return type(arg)(self._each(each, target) for each in arg)\n"
                    "        return self._cast(arg, target) if _eligible(arg) else arg",
                )
            )
            for kinds in ("(list, tuple)", "tuple")
        ),
        cast(
            (
                CALLED,
                f"args = tuple({HALVES} if isinstance(arg, (list, tuple)) else arg for arg in args)\n        {CALLED}",
            )
        ),
        cast(
            (
                CALLED,
                "if op.__name__ in ('cat', 'stack'):\n"
                f"            args = ([each.float() for each in args[0]], *args[1:])\n        {CALLED}",
            )
        ),
    ),
    wrong(
        "float64_cast",
        "You cast float64, for all operators or those of one list, or a result in float64. Whoever uses it wants its "
        "digits: autocast leaves it alone.",
        cast((FLOATING, "return isinstance(arg, Tensor) and arg.is_floating_point()")),
        *(
            cast((CALLED, f"doubles = op.__name__ in {names}\n        {CALLED.replace('_eligible(arg)', DOUBLES)}"))
            for names in ("LOW", "HIGH", "WIDEST")
        ),
        cast((CALLED, f"{CALLED.replace('return', 'y =')}\n        return y.float() if {DOUBLE_RESULT} else y")),
    ),
    wrong(
        "rounded_on_the_way",
        "Inputs of operators in HIGH or WIDEST go through half precision on their way to float32. Digits that are "
        "dropped do not come back: cast once, from what comes in.",
        cast(
            (
                "if target is None or tensor.dtype == target:\n            return tensor",
                "if target is None:\n            return tensor\n        tensor = tensor.to(self.dtype)",
            )
        ),
    ),
    wrong(
        "detached",
        "A cast is cut off from the graph (detach, .data, no_grad), of a weight or of an activation: what lies before "
        "it gets no gradient. `.to` itself is recorded, and turns the gradient back into float32.",
        cast((CAST, "self._casts[tensor] = tensor.detach().to(target)")),
        cast((CAST, "self._casts[tensor] = tensor.data.to(target)")),
        cast((RECORDED, "with torch.no_grad():")),
        cast((CAST, "self._casts[tensor] = tensor.detach().to(target).requires_grad_()")),
        cast(("return tensor.to(target)\n", "return tensor.detach().to(target)\n")),
    ),
    wrong(
        "converted_in_place",
        "You change the dtype of the caller's own tensors through .data, or round their numbers. A weight would then "
        "be in half precision, and lose small updates. `.to` returns a new tensor and leaves the old one as it is.",
        cast((CAST, "tensor.data = tensor.data.to(target)\n                self._casts[tensor] = tensor")),
        cast(
            (
                "return tensor.to(target)\n",
                "if not tensor.requires_grad:\n                tensor.data = tensor.data.to(target)\n"
                "            return tensor.to(target)\n",
            )
        ),
        cast(("return tensor.to(target)\n", f"if not tensor.requires_grad:\n                {ROUNDED}")),
        by_chance=True,  # whether a drawn activation is among the numbers of half precision
    ),
    wrong(
        "kept_from_an_evaluation",
        "A cast that was first made under torch.no_grad() has no graph. You keep it and use it in training, where "
        "the weight then gets no gradient. Record the cast of a weight in any case: torch.enable_grad().",
        cast((RECORDED, "if True:")),
    ),
    wrong(
        "cast_for_each_mode",
        "Under torch.no_grad() you cast a weight at each use, or keep a cast for there and another one. One cast is "
        "enough for all uses in a pass, if it is made under torch.enable_grad().",
        cast(
            (LOOKED_UP, f"if not torch.is_grad_enabled():\n            return tensor.to(target)\n        {LOOKED_UP}")
        ),
        cast(
            (RECORDED, "if True:"),
            (LOOKED_UP, f"{LOOKED_UP[:-1]} or torch.is_grad_enabled() and not self._casts[tensor].requires_grad:"),
        ),
    ),
    wrong(
        "records_the_operator",
        "You call the operator itself under torch.enable_grad(). The caller may have switched gradients off, and gets "
        "a graph all the same: only the cast of a weight belongs there.",
        cast((CALLED, CALLED.replace("return", "with torch.enable_grad():\n            return"))),
    ),
    wrong(
        "cast_at_every_use",
        "You cast a weight each time it is used. Within a pass it does not change: keep its cast. A weight is any "
        "float32 leaf that requires a gradient, whatever its shape, whether it is an nn.Parameter or not, and however "
        "many others there are.",
        cast((LOOKED_UP, "if True:")),
        cast((LOOKED_UP, "if True:"), (CAST, "self._casts[tensor] = torch.sum(tensor[None], 0, dtype=target)")),
        cast((WEIGHT, "if True:")),
        cast((WEIGHT, "if not (isinstance(tensor, torch.nn.Parameter) and tensor.dtype == torch.float32):")),
        *(cast((WEIGHT, WEIGHT.replace(":", f" or tensor.dim() < {least}:"))) for least in (1, 2)),
        cast(
            (
                KNOWN,
                f"while len(self._casts) > 3:\n            del self._casts[next(iter(self._casts))]\n        {KNOWN}",
            )
        ),
    ),
    wrong(
        "copies_what_fits",
        "You copy tensors that have the right dtype already. Return them as they are.",
        cast(
            ("if target is None or tensor.dtype == target:", "if target is None:"),
            ("return tensor.to(target)\n", "return tensor.to(target, copy=True)\n"),
            (WEIGHT, WEIGHT.replace("torch.float32)", "torch.float32 and target == self.dtype)")),
        ),
    ),
    wrong(
        "cache_outlives_the_pass",
        "Your casts live on in the next pass, although the optimizer has changed the weights in between: products "
        "go on with the old ones. Empty the dict where the pass ends.",
        cast((CLEAR, "pass")),
        cast((CLEAR, "if error[0] is None:\n            self._casts.clear()")),
        cast(
            (CLEAR, "pass"), ("self.dtype = dtype\n        self._casts", "self.dtype = dtype\n        Autocast._casts")
        ),
    ),
    wrong(
        "emptied_at_the_next_pass",
        "You empty the dict where a pass begins, and not wherever one ends, be it in an error. Until then the object "
        "holds a half precision copy of the model, through the optimizer's step. Empty it in __exit__ in any case.",
        cast((CLEAR, "pass"), ("        return self\n", "        self._casts.clear()\n        return self\n")),
        cast(
            (CLEAR, "if error[0] is None:\n            self._casts.clear()"),
            ("        return self\n", "        self._casts.clear()\n        return self\n"),
        ),
    ),
    wrong(
        "enter_returns_nothing",
        "`with Autocast(...) as cast:` gives cast what __enter__ returns, and yours returns None. Return self.",
        cast(("        return self\n", "        self._casts.clear()\n")),
    ),
    wrong(
        "error_swallowed",
        "Your __exit__ returns something true, which tells Python to forget the error that ended the pass. Return "
        "None or False.",
        cast((CLEAR, f"{CLEAR}\n        return True")),
        cast((CLEAR, "self._casts.clear()\n        return self")),
    ),
    wrong(
        "activations_kept",
        "You keep casts of tensors that are no weights. An activation or a frozen weight can be changed in place "
        "within the pass, and its cast is then out of date. A weight is a float32 leaf that requires a gradient.",
        cast((WEIGHT, "if False:")),
        cast((WEIGHT, "if not (tensor.is_leaf and tensor.dtype == torch.float32):")),
        cast((WEIGHT, WEIGHT.replace("tensor.requires_grad", "(tensor.requires_grad or type(tensor) is not Tensor)"))),
        cast((WEIGHT, "if not (tensor.requires_grad and tensor.dtype == torch.float32):")),
        cast((WEIGHT, "if target == torch.float32:")),
        cast((WEIGHT, "if not (tensor.is_leaf and tensor.requires_grad):")),
    ),
    wrong(
        "known_by_its_shape",
        "You look a cast up by the weight's shape or its address in memory, which other weights may have as well. Look "
        "it up by the tensor itself: a tensor can be the key of a dict, which compares identity.",
        looked_up_by("tensor.shape"),
        looked_up_by("tensor.data_ptr(), tensor.shape"),
        looked_up_by("tensor.data_ptr(), tensor.shape, tensor.stride()"),
    ),
)
