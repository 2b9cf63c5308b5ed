"""What a piece of code keeps alive, however it keeps it.

op --output--> weak reference to its storage ... after the code: which of them are still there?
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

from course.meter.storage import Row, address, bytes_now, not_counted, weakly

SCALARS = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
FRESH = torch.ops.aten.lift_fresh.default  # what `torch.tensor([1.0])` calls on the tensor that it just made
Made: TypeAlias = tuple[str, tuple[int, ...], torch.dtype]  # the op that made a tensor, its shape and dtype


class KeptBytes:
    """The storages that ops made, by weak reference: watching keeps nothing alive.

    Most questions are whether a storage is among them, so they are found by their addresses: a weak reference takes
    much longer to make than to look one up.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[StorageWeakRef, Made]] = {}

    def __deepcopy__(self, memo: object) -> KeptBytes:
        """An empty meter: torch would free a weak reference once for each copy of it."""
        return KeptBytes()

    def watch(self, tensor: Tensor, op: str = "") -> bool:
        """Follows the storage of `tensor` from now on. Returns whether it was not followed before."""
        if self.watches(tensor):
            return False
        reference = weakly(tensor)
        self._made[reference.cdata] = reference, (op, tuple(tensor.shape), tensor.dtype)
        return True

    def watches(self, tensor: Tensor) -> bool:
        """Whether the storage of `tensor` is followed."""
        return address(tensor) in self._made

    def rows(self, ignore: Iterable[Tensor] = ()) -> list[Row]:
        """One row per storage that is alive now, in the order in which they were made.

        ignore  tensors whose storages do not count, such as the result that the caller holds anyway
        """
        return [Row(op=op, shape=shape, dtype=dtype, bytes=size) for (op, shape, dtype), size in self._alive(ignore)]

    def bytes_alive(self, ignore: Iterable[Tensor] = ()) -> int:
        """Bytes of all storages that are alive now."""
        return sum(size for _, size in self._alive(ignore))

    def _alive(self, ignore: Iterable[Tensor]) -> list[tuple[Made, int]]:
        """What made each storage that is alive now, and its bytes. Forgets the others."""
        found, ignored = list[tuple[Made, int]](), not_counted(ignore)
        addresses = {each.cdata for each in ignored}
        for at, (_, made) in list(self._made.items()):
            size = bytes_now(at)
            if size is None:
                del self._made[at]
            elif at not in addresses:
                found.append((made, size))
        return found


@contextmanager
def kept_bytes(*, after: Callable[[KeptBytes], object] | None = None) -> Iterator[KeptBytes]:
    """Follows every storage that an op makes in the body of the `with`; ask it afterwards what is still alive.

    after  called after every op, to follow over time what is alive

    A storage counts where something holds it: a graph, `ctx.x = x`, a closure, a global, a list. What was made
    before the body is the caller's and never counts, its views and in-place changes included. To learn whether an
    input is kept, make it in the body and delete it there:

        with kept_bytes() as meter:
            x = leaf.clone()
            y = f(x)
            del x
        meter.bytes_alive() - y.nbytes      # bytes kept besides y itself

    It does not see memory that torch does not own (numpy copies, Python lists of numbers), what `copy.deepcopy` and
    pickle make of tensors that are no parameters, because they copy storages without an op, nor other threads. What
    lies in a reference cycle counts until Python's collector has found it: see `cycles_freed`. Dense tensors only.
    """
    meter = KeptBytes()
    with _Reporter(meter, after):
        yield meter


@contextmanager
def cycles_freed() -> Iterator[None]:
    """Frees at its end what the body made and left in reference cycles.

    The collector does not run in the body, so that all that is new is in its youngest generation. A `gc.collect()`
    would look at every object of the process: a quarter of a second where torch's compiler is imported.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class Call:
    """An op that has just run.

    name   ATen's, such as `addmm` or `add_`
    given  its tensors
    made   one output for each storage that was not there before
    """

    op: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    given: list[Tensor]
    made: list[Tensor]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands the outputs of every op to a meter, unless they alias a tensor from outside; then notes the call."""

    def __init__(self, meter: KeptBytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._meter = meter
        self._lock = threading.RLock()  # a backward has a thread for each GPU

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's compiler need not be kept out of this: to import it for that would take 2 s."""
        return False

    def note(self, call: Call) -> None:
        """What follows every op."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented  # the ops on what lies in a DTensor come here by themselves
        operation: Callable[..., Any] = func
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        name = str(func.overloadpacket.__name__)
        with self._lock:
            given = [] if func is FRESH else tensors((args, kwargs))
            results = tensors(result)
            outside = {address(each) for each in given if not self._meter.watches(each)} if results else set()
            made = [each for each in results if address(each) not in outside and self._meter.watch(each, name)]
            self.note(Call(op=func, name=name, args=args, kwargs=kwargs, result=result, given=given, made=made))
        return result


class _Reporter(Recorder):  # type: ignore[no-untyped-call]
    """Shows the meter to a function after every op."""

    def __init__(self, meter: KeptBytes, after: Callable[[KeptBytes], object] | None) -> None:
        super().__init__(meter)
        self._after = after

    def note(self, call: Call) -> None:
        if self._after is not None:
            self._after(self._meter)


def tensors(tree: object) -> list[Tensor]:
    """All tensors in a tree of arguments or results."""
    if isinstance(tree, Tensor):
        return [tree]
    kind = type(tree)
    if kind is tuple or kind is list or kind is dict:  # torch's own way takes five times as long
        inside: Any = cast(dict[Any, Any], tree).values() if kind is dict else tree
        return [found for each in inside if each is not None for found in tensors(each)]
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)] if kind not in SCALARS else []
