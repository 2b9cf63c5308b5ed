"""What a piece of code costs, op by op: live bytes, FLOPs, dtypes, calls.

    op --its new storages, by weak reference--> run.made: what is alive now
     \\--its name, module, dtypes, FLOPs, and the bytes that are live right after it--> run.trace

words
    live bytes  of the storages that ops of the body made and that are alive at a moment
    peak        the op right after which most bytes were live
    kept        live bytes now. After a forward: what its graph needs, and what the caller holds
    given       storages from before the body that its ops used, such as parameters and a batch: never live bytes
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from course.errors import BadArgument
from course.meter.calls import Counted, forward_calls
from course.meter.flops import flops
from course.meter.kept import Call, KeptBytes, Recorder, tensors
from course.meter.storage import Row, storage_bytes


@dataclass(frozen=True, kw_only=True)
class Op:
    """One op of a run.

    index     its place in the trace
    name      ATen's, such as `addmm`, `add_` or `_to_copy`
    module    path of the innermost module in whose forward it ran, `GPT.blocks.0.mlp.up`; for an op of backward, of the
              module whose forward it goes back through; "" where there is none
    backward  whether it ran in a backward pass, a recomputation there included
    shape     of its first output
    inputs    dtypes of the floating tensors that it was given
    outputs   dtypes of the tensors that it returned
    flops     floating point operations of a product, a convolution or an attention; 0 of others
    made      bytes of the storages that it made
    live      live bytes right after it
    """

    index: int
    name: str
    module: str
    backward: bool
    shape: tuple[int, ...]
    inputs: tuple[torch.dtype, ...]
    outputs: tuple[torch.dtype, ...]
    flops: int
    made: int
    live: int

    @property
    def is_cast(self) -> bool:
        """Whether it copied floating numbers into another floating dtype, as autocast and `.to(dtype)` do."""
        kinds = {*self.inputs, *self.outputs}
        return self.name == "_to_copy" and len(kinds) == 2 and all(kind.is_floating_point for kind in kinds)


@dataclass(kw_only=True)
class Allocator:
    """Bytes that CUDA's allocator had given out on the current device: before the body, after it, at the highest.

    Whatever was there before is included, and so is what ops need inside. Each storage takes a multiple of 512 bytes.
    """

    before: int
    after: int = 0
    peak: int = 0

    def update(self) -> None:
        """Takes the allocator's numbers of this moment."""
        self.after = torch.cuda.memory_allocated()
        self.peak = max(self.peak, torch.cuda.max_memory_allocated())


class Run:
    """What was seen in the body of a `metered`; it may be asked there and afterwards.

    trace        the ops in the order in which they ran
    made, given  the storages that the body made, and those from before it that its ops used; `rows()` lists them
    largest      the largest storage that an op made: op, shape, dtype, bytes; None where none made any
    evaluations  for each module or function that was asked for its number of calls, once the body has ended
    cuda         CUDA's own account of the memory; None where CUDA had not been used before the body
    """

    def __init__(self) -> None:
        self.trace: list[Op] = []
        self.made, self.given = KeptBytes(), KeptBytes()
        self.largest: Row | None = None
        self.evaluations: dict[Callable[..., Any], int] = {}
        self.cuda: Allocator | None = None

    def kept(self, ignore: Iterable[Tensor] = ()) -> int:
        """Bytes that the body made and that are alive now, however they are kept; without those of `ignore`."""
        return self.made.bytes_alive(ignore)

    @property
    def timeline(self) -> list[int]:
        """Live bytes right after each op."""
        return [op.live for op in self.trace]

    @property
    def peak(self) -> Op | None:
        """The first op right after which most bytes were live; None where no op ran."""
        return max(self.trace, key=lambda op: op.live, default=None)

    @property
    def kept_by_forward(self) -> int | None:
        """Live bytes when the first backward began, the gradient that it starts from included; None without one."""
        return next((op.live - op.made for op in self.trace if op.backward), None)

    @property
    def flops(self) -> dict[str, int]:
        """FLOPs by the name of the op, for all that have any."""
        sums: Counter[str] = Counter()
        for op in self.trace:
            sums[op.name] += op.flops
        return dict(+sums)


@contextmanager
def metered(*, evaluations: Iterable[Callable[..., Any]] = ()) -> Iterator[Run]:
    """Accounts for every op in the body of the `with`, its backward passes included.

    evaluations  modules, and functions that `counted` returned, whose calls are counted

        with metered(evaluations=[block]) as run:
            model(x).sum().backward()
        run.peak.live, run.peak.name, run.kept_by_forward, sum(run.flops.values()), run.evaluations[block]

    A storage counts once, whoever views it, with the bytes that it has at the moment: none once it is freed, or
    emptied by `resize_(0)`. What was made before the body never counts, even if it grows; `run.given` has it. Memory
    is looked at right after each op: what an op needs only inside is not seen, nor is what torch does not own.

    Threads that the body starts are not seen. Autograd's are, so that a backward on GPUs counts: it takes the mode
    along (ATen/ThreadLocalState.h). Once such a thread has recomputed a part, it is no longer known which modules the
    ops of backward belong to. Runs may be nested: each sees all that runs inside it. Dense tensors only.

    What looking costs: see benchmarks/meter.py. Raises BadArgument where calls of something else are to be counted.
    """
    run = Run()
    watcher = _Watcher(run)
    with ExitStack() as stack:
        counters = {each: stack.enter_context(_counter(each)) for each in evaluations}
        before = {each: counter.calls for each, counter in counters.items()}
        stack.callback(register_module_forward_pre_hook(watcher.enter).remove)
        stack.callback(register_module_forward_hook(watcher.leave, always_call=True).remove)
        stack.enter_context(_cuda(run))
        try:
            with watcher:
                yield run
        finally:
            run.evaluations = {each: counter.calls - before[each] for each, counter in counters.items()}


@contextmanager
def _counter(called: Callable[..., Any]) -> Iterator[Counted[..., Any]]:
    if isinstance(called, nn.Module):
        with forward_calls(called) as counter:
            yield counter
    elif isinstance(called, Counted):
        yield called
    else:
        raise BadArgument(
            f"evaluations must be modules, or functions that `counted` returned, got {called!r}; "
            "write `f = counted(f)`, call that f and give it here"
        )


@contextmanager
def _cuda(run: Run) -> Iterator[None]:
    """The allocator has one peak, which starts again with each run: the runs around this one look at it before."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield
        return
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, _Watcher) and mode.run.cuda is not None:
            mode.run.cuda.update()
    torch.cuda.reset_peak_memory_stats()
    run.cuda = cuda = Allocator(before=torch.cuda.memory_allocated())
    try:
        yield
    finally:
        cuda.update()


class _Watcher(Recorder):  # type: ignore[no-untyped-call]
    """Writes down each op, and knows which module it belongs to.

    Autograd numbers the nodes of its graph as each thread makes them, and makes an op's node right before the op runs.
    So in forward the last number is that of this op's node; in backward the running node's number tells the op.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.made)
        self.run = run
        self._paths: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._inside: list[str] = []  # whose forward is running, the outermost first
        self._thread, self._first = threading.get_ident(), _get_sequence_nr()
        self._makers: dict[int, str] = {}  # the module that made a node, by the node's number

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.is_inference_mode_enabled():  # an op that consists of others comes whole there
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return super().__torch_dispatch__(func, types, args, kwargs)

    def note(self, call: Call) -> None:
        """One line of the trace."""
        run, outputs = self.run, tensors(call.result)
        for each in call.given:
            if not run.made.watches(each):
                run.given.watch(each, call.name)
        made = [
            Row(op=call.name, shape=tuple(each.shape), dtype=each.dtype, bytes=storage_bytes(each))
            for each in call.made
        ]
        run.largest = max([*filter(None, [run.largest]), *made], key=lambda row: row.bytes, default=None)
        backward = torch._C._current_graph_task_id() != -1
        op = Op(
            index=len(run.trace),
            name=call.name,
            module=self._module(backward),
            backward=backward,
            shape=tuple(outputs[0].shape) if outputs else (),
            inputs=tuple(each.dtype for each in call.given if each.is_floating_point()),
            outputs=tuple(each.dtype for each in outputs),
            flops=flops(call),
            made=sum(row.bytes for row in made),
            live=run.made.bytes_alive(),
        )
        run.trace.append(op)

    def enter(self, module: nn.Module, _args: object) -> None:
        """A module's forward begins, perhaps in a thread that is not watched."""
        if self not in _get_current_dispatch_mode_stack():
            return
        if module not in self._paths:
            for path, part in module.named_modules(prefix=type(module).__name__):
                self._paths.setdefault(part, path)
        self._inside.append(self._paths[module])

    def leave(self, _module: nn.Module, _args: object, _result: object) -> None:
        """It ends, perhaps with an error."""
        if self._inside and self in _get_current_dispatch_mode_stack():
            self._inside.pop()

    def _module(self, backward: bool) -> str:
        path = self._inside[-1] if self._inside else ""
        if backward and not path:
            node = torch._C._current_autograd_node()
            path = self._makers.get(node._sequence_nr(), "") if node is not None else ""
        number = _get_sequence_nr() - 1
        if threading.get_ident() != self._thread:
            if torch.is_grad_enabled():  # nodes of this thread may have numbers of the other's
                self._makers.clear()
        elif number >= self._first:
            self._makers.setdefault(number, path)
        return path
