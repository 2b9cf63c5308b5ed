"""Messages that a rank has begun with `isend`: whether their tensors stayed as they were until `wait`, and it came.

    comm --Begun--> the same verbs --isend--> a copy to compare with --wait--> changed: how many were not left alone

Simulated and brokered ranks read what is sent at the rank's next call, so that what is written afterwards harms nothing
there. With torch.distributed it is undefined what is sent then, and when, where nobody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from course.cluster import Comm, P2POp, Work
from course.performing.compare import same_bits
from course.performing.exercise import Property


def left_alone(*, needs: tuple[str, ...]) -> Property:
    """The property that every `isend` was waited for, and nothing written to before; observed under `changed`."""
    return Property(
        "left_alone_until_waited",
        "You never wait for an `isend`, or write into its tensor while that may still be read. Here it was read in "
        "time, elsewhere the next rank may get your new numbers: call wait() first, or send another tensor.",
        keys=("*/changed",),
        needs=needs,
    )


class Begun:
    """A communicator that looks at what it sends, once more when it is waited for."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._open: dict[int, tuple[Tensor, Tensor]] = {}  # what is on its way: the tensor, and a copy of it
        self._count = self._changed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def isend(self, tensor: Tensor, dst: int, *, tag: int = 0) -> Work:
        """See Comm."""
        return self._watched(self._comm.isend(tensor, dst, tag=tag), tensor)

    def batch_isend_irecv(self, ops: Sequence[P2POp]) -> list[Work]:
        """See Comm."""
        sends = [isinstance(op, P2POp) and op.op == self.isend for op in ops]
        plain = [op._replace(op=self._comm.isend) if is_send else op for op, is_send in zip(ops, sends, strict=True)]
        works = self._comm.batch_isend_irecv(plain)
        parts = zip(works, ops, sends, strict=True)
        return [self._watched(work, op.tensor) if is_send else work for work, op, is_send in parts]

    def changed(self) -> int:
        """How many messages were written to before they had been waited for, or are still not waited for."""
        return self._changed + len(self._open)

    def _watched(self, work: Work, tensor: Tensor) -> Work:
        self._count += 1
        number = self._count
        self._open[number] = tensor, tensor.detach().clone()
        work.get_future().add_done_callback(lambda _: self._over(number))
        return work

    def _over(self, number: int) -> None:
        self._changed += not same_bits(*self._open.pop(number))
