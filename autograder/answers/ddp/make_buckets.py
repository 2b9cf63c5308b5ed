"""Right and wrong ways to write `make_buckets`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from torch.nn import Parameter

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.make_buckets import make_buckets


def closed_when_full(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """Buckets come out as they are closed; those still open at the end are complete then, too, and sorted in."""
    found: list[tuple[int, list[Parameter]]] = []
    filling: dict[object, tuple[int, int, list[Parameter]]] = {}
    seen: set[int] = set()
    once = [p for p in params if not (id(p) in seen or seen.add(id(p)))]  # type: ignore[func-returns-value]
    for at in range(len(once) - 1, -1, -1):
        p = once[at]
        if not p.requires_grad:
            continue
        size = p.numel() * p.element_size()
        _, used, bucket = filling.get(p.dtype, (0, 0, []))
        if bucket and used + size > cap:
            found.append((filling[p.dtype][0], bucket))
            used, bucket = 0, []
        filling[p.dtype] = (at, used + size, [*bucket, p])
    found += [(at, bucket) for at, _, bucket in filling.values()]
    return [bucket for _, bucket in sorted(found, key=lambda each: -each[0])]


def by_running_sums(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """For each dtype alone: searches the running sum of bytes for the place where a bucket ends."""
    names = [id(p) for p in params]
    first = sorted({names.index(name) for name in names}, reverse=True)
    kept = [at for at in first if params[at].requires_grad]
    ends: list[tuple[int, list[Parameter]]] = []
    for dtype in {params[at].dtype for at in kept}:
        of_dtype = [at for at in kept if params[at].dtype == dtype]
        sums = np.array([0, *accumulate(params[at].nbytes for at in of_dtype)])
        start = 0
        while start < len(of_dtype):
            end = max(start + 1, int(np.searchsorted(sums, sums[start] + cap, side="right")) - 1)
            ends.append((-of_dtype[end - 1], [params[at] for at in of_dtype[start:end]]))
            start = end
    return [bucket for _, bucket in sorted(ends, key=lambda each: each[0])]


RIGHT = (right(closed_when_full), right(by_running_sums, independent="NumPy's search in running sums"))


def large_ones_beside(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """What is larger than the cap gets a bucket of its own, and the open one stays open."""
    order = [p for p in reversed(dict.fromkeys(params)) if p.requires_grad]
    buckets: list[list[Parameter]] = []
    filling: dict[object, list[Parameter]] = {}
    for p in order:
        if p.nbytes > cap:
            buckets.append([p])
            continue
        bucket = filling.get(p.dtype)
        if bucket is None or sum(each.nbytes for each in bucket) + p.nbytes > cap:
            bucket = filling[p.dtype] = []
            buckets.append(bucket)
        bucket.append(p)
    place = {p: number for number, p in enumerate(order)}
    return sorted(buckets, key=lambda bucket: place[bucket[-1]])


def as_they_were_closed(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """Each bucket as it is closed, and at the end those that are open."""
    closed: list[list[Parameter]] = []
    filling: dict[object, list[Parameter]] = {}
    for p in reversed(dict.fromkeys(params)):
        bucket = filling.setdefault(p.dtype, [])
        if bucket and sum(each.nbytes for each in [*bucket, p]) > cap and p.requires_grad:
            closed.append(bucket)
            bucket = filling[p.dtype] = []
        bucket += [p] * p.requires_grad
    return [bucket for bucket in [*closed, *filling.values()] if bucket]


def dtype_by_dtype(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """All buckets of one dtype, then those of the next."""
    dtypes = dict.fromkeys(p.dtype for p in reversed(params))
    return [bucket for dtype in dtypes for bucket in make_buckets([p for p in params if p.dtype == dtype], cap)]


edit = partial(edited, make_buckets)
ORDER = "reversed(dict.fromkeys(params))"
SORTED = "return sorted(buckets, key=lambda bucket: place[bucket[-1]])"
FITS = "sum(each.nbytes for each in bucket) + p.nbytes > cap"
OPEN = ("still_open.get(p.dtype)", "still_open[p.dtype]")
FROZEN_LEFT_OUT = (
    "left = [[p for p in bucket if p.requires_grad] for bucket in buckets]\n"
    "    place = {p: number for number, p in enumerate(order)}\n"
    "    return sorted(filter(None, left), key=lambda bucket: place[bucket[-1]])"
)
CLOSED_BY_FROZEN = (
    "    for p in order:\n        if not p.requires_grad:\n"
    "            still_open.pop(p.dtype, None)\n            continue\n"
)

WRONG = (
    wrong(
        "forward_order",
        "You begin with what forward used first. Its gradients come last, so that the first bucket would be complete "
        "when backward ends, and nothing could overlap.",
        edit((ORDER, "dict.fromkeys(params)")),
        edit((SORTED, SORTED + "[::-1]")),
        edit(
            (
                SORTED,
                SORTED.replace("sorted(buckets", "sorted((each[::-1] for each in buckets)").replace("[-1]]", "[0]]"),
            )
        ),
    ),
    wrong(
        "tied_twice",
        "A parameter that is used twice is in two places of your buckets, and its gradient would be averaged twice. It "
        "is one object: keep the first place alone.",
        edit((ORDER, "reversed(params)")),
    ),
    wrong(
        "tied_at_its_last_use",
        "What is used twice stands where forward used it last. Its gradient is the sum of both uses, and complete when "
        "backward has passed the first one.",
        edit((ORDER, "dict.fromkeys(reversed(params))")),
    ),
    wrong(
        "equal_is_the_same",
        "You take parameters for one that hold equal numbers. Compare objects: `is`, `id(p)`, or a dict with the "
        "parameters as keys; `in` of a list compares numbers.",
        edit(
            (
                "    order = [",
                "    once = []\n    for p in params:\n        if not any(p.shape == q.shape and "
                "bool((p == q).all()) for q in once):\n            once.append(p)\n    order = [",
            ),
            (ORDER, "reversed(once)"),
        ),
    ),
    wrong(
        "frozen_too",
        "A frozen parameter gets no gradient: its bucket would wait for it for ever. Leave out what has requires_grad "
        "False.",
        edit((" if p.requires_grad]", "]")),
    ),
    wrong(
        "frozen_take_room",
        "A frozen parameter takes room in your bucket, or closes it, though it is not put in. Pass over it before you "
        "look at the cap.",
        edit(
            (" if p.requires_grad]", "]"),
            (SORTED, FROZEN_LEFT_OUT),
        ),
        edit(
            (" if p.requires_grad]", "]"),
            ("    for p in order:\n", CLOSED_BY_FROZEN),
        ),
    ),
    wrong(
        "same_memory_is_the_same",
        "You take parameters for one whose data_ptr is the same. It is 0 for all without elements, and on the meta "
        "device. Compare objects: `is`, or a dict with the parameters as keys.",
        edit((ORDER, "reversed({p.data_ptr(): p for p in params}.values())")),
    ),
    wrong(
        "dtypes_of_one_size_together",
        "You keep one open bucket for each size of an element. float16 and bfloat16 have 2 bytes both, and cannot be "
        "parts of one tensor: keep one for each dtype.",
        edit((OPEN[0], "still_open.get(p.element_size())"), (OPEN[1], "still_open[p.element_size()]")),
    ),
    wrong(
        "as_they_were_closed",
        "Your buckets are in the order in which they were closed, or dtype by dtype. One that nothing has closed may "
        "be complete long before: sort by the place of the last parameter.",
        as_they_were_closed,
        dtype_by_dtype,
    ),
    wrong(
        "elements_for_bytes",
        "The cap is in bytes, and you count elements. Use p.nbytes.",
        edit((FITS, "sum(each.numel() for each in bucket) + p.numel() > cap")),
        edit((FITS, "len(bucket) + 1 > cap")),
    ),
    wrong(
        "four_bytes_for_all",
        "You count 4 bytes for every element. bfloat16 has 2, float64 has 8: p.element_size().",
        edit((FITS, "4 * (sum(each.numel() for each in bucket) + p.numel()) > cap")),
        edit((FITS, "sum(min(each.element_size(), 4) * each.numel() for each in [*bucket, p]) > cap")),
    ),
    wrong(
        "closed_when_over",
        "You close a bucket when it has exceeded the cap, so that buckets are too large by their last parameter. "
        "(torch's own do so.) Ask before you put it in.",
        edit((FITS, "sum(each.nbytes for each in bucket) >= cap")),
        edit((FITS, "sum(each.nbytes for each in bucket) > cap")),
    ),
    wrong(
        "never_quite_full",
        "A bucket may have exactly `cap` bytes: compare with >, not with >=.",
        edit((FITS, FITS.replace(">", ">="))),
    ),
    wrong(
        "fills_gaps",
        "You put a parameter into an earlier bucket that has room. That bucket was closed: it would have to wait for "
        "this parameter, which comes later. Look at the open bucket alone.",
        edit(
            (
                "bucket = still_open.get(p.dtype)",
                "bucket = next((each for each in buckets if each[0].dtype == p.dtype "
                "and sum(q.nbytes for q in each) + p.nbytes <= cap), None)",
            ),
        ),
        large_ones_beside,
    ),
    wrong(
        "empty_bucket",
        "A bucket of yours is empty: the first parameter was larger than the cap, and closed a bucket that had nothing "
        "in it yet. Or you begin, or end, with an empty one.",
        edit(
            (
                "buckets: list[list[Parameter]] = []",
                "start: list[Parameter] = []\n    buckets: list[list[Parameter]] = [start]",
            ),
            ("still_open: dict[torch.dtype, list[Parameter]] = {}", "still_open = {params[0].dtype: start}"),
            (SORTED, "return sorted(buckets, key=lambda bucket: place[bucket[-1]] if bucket else -1)"),
        ),
        edit((SORTED, SORTED + " + [[]]")),
    ),
    wrong(
        "no_bytes_is_no_bucket",
        "You ask whether a bucket has bytes where you mean whether it has parameters. One without elements has 0 "
        "bytes: what is larger than the cap would join it, and then both have more than the cap.",
        edit((FITS, f"any(each.nbytes for each in bucket) and {FITS}")),
    ),
    wrong(
        "last_bucket_dropped",
        "What is still open when the parameters end is a bucket, too: do not forget it.",
        edit((SORTED, SORTED + "[:-1]")),
    ),
    wrong(
        "dtypes_together",
        "You put different dtypes into one bucket. They are to be one tensor, which has one dtype.",
        edit((OPEN[0], "still_open.get(None)"), (OPEN[1], "still_open[None]")),
    ),
    wrong(
        "another_dtype_closes",
        "A parameter of another dtype closes your bucket, so that there are more buckets than needed. Keep one open "
        "for each dtype.",
        edit(
            (
                "        bucket = still_open.get(p.dtype)\n",
                "        still_open = {p.dtype: still_open[p.dtype]} if p.dtype "
                "in still_open else {}\n        bucket = still_open.get(p.dtype)\n",
            ),
        ),
    ),
    wrong(
        "as_they_were_begun",
        "Your buckets are in the order in which they were begun. One that waits long for its last parameter would hold "
        "up those that are complete: sort by the place of the last parameter.",
        edit((SORTED, "return buckets")),
    ),
    wrong(
        "reverses_the_list",
        "You reverse the caller's own list. It still needs it: use reversed(...) or [::-1].",
        edit(
            (ORDER, "dict.fromkeys(params)"),
            ("    order = [", "    params[:] = list(dict.fromkeys(params))[::-1]\n    order = ["),
        ),
        fails=("list_unchanged",),
    ),
)
