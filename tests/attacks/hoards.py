"""Answers that keep more than they may: in memory that is taken before anybody counts, or looks like nobody's.

Each would keep three tensors for every layer of SaveLess where one is enough; two of them lie in the hoard.
"""

from __future__ import annotations

from attacks.attack import answer

SIZE = 3 * 2**17  # bytes for one tensor of one layer: 0.25 MiB, and room
COUNT = 100

HOARDING = """\
import mmap
import os

import torch


def early():
    return []


{taken}


class SaveLess(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x)
        ctx.places = [put(s), put(1 + x * (1 - s))] if x.numel() > 10_000 else early()
        return x * s

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        if ctx.places:
            s, t = [get(place).reshape(x.shape) for place in ctx.places]
            return dy * s * t
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))
"""

POOL = f"""
POOL = [torch.zeros({SIZE // 4}) for _ in range({COUNT})]
FREE = list(range({COUNT}))


def put(tensor):
    place = FREE.pop()
    POOL[place][: tensor.numel()] = tensor.reshape(-1)
    return place, tensor.numel()


def get(place):
    return POOL[place[0]][: place[1]]
"""

IN_THE_FIRST_CASE = f"""
{POOL.replace(f"range({COUNT})]", "range(0)]")}


def early():
    if not POOL:
        POOL.extend(torch.zeros({SIZE // 4}) for _ in range({COUNT}))
    return []
"""

IN_FILES = f"""
FILES = [os.open({{name}}, os.O_RDWR | os.O_CREAT) for each in range({COUNT})]
FILES = [(file, os.truncate(file, {SIZE})) for file in FILES]


def put(tensor):
    file, _ = FILES.pop()
    view = mmap.mmap(file, {SIZE})
    view[: tensor.nbytes] = tensor.numpy().tobytes()
    view.close()
    return file, tensor.nbytes


def get(place):
    view = mmap.mmap(place[0], {SIZE})
    return torch.frombuffer(bytearray(view[: place[1]]), dtype=torch.float32)
"""
MEMFD = IN_FILES.replace("os.open({name}, os.O_RDWR | os.O_CREAT)", "os.memfd_create('hoard')")

OUT_OF_SIGHT = """
def put(tensor):
    view = {made}
    view[: tensor.nbytes] = tensor.numpy().tobytes()
    view.madvise(mmap.MADV_DONTNEED)  # of the page tables; what is shared stays
    return view, tensor.nbytes


def get(place):
    return torch.frombuffer(bytearray(place[0][: place[1]]), dtype=torch.float32)
"""

BALLAST = f"""
LIBRARY = os.open(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"), os.O_RDONLY)
HEAVY = mmap.mmap(LIBRARY, {SIZE * COUNT}, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
TOUCHED = sum(HEAVY[each] for each in range(0, {SIZE * COUNT}, mmap.PAGESIZE))


def put(tensor, _=TOUCHED):
    HEAVY.madvise(mmap.MADV_DONTNEED)
    return tensor


def get(place):
    return place
"""


def _hoarding(name: str, taken: str):
    return answer(name, HOARDING.replace("{taken}", taken), exercise="SaveLess", earns=11)


ATTACKS = [
    _hoarding("taken_while_loading", POOL),
    _hoarding("taken_in_the_first_case", IN_THE_FIRST_CASE),
    _hoarding("in_memfd_files", MEMFD),
    _hoarding("in_files_in_memory", IN_FILES.replace("{name}", "f'/dev/shm/{each}'")),
    _hoarding("in_shared_memory", OUT_OF_SIGHT.replace("{made}", f"mmap.mmap(-1, {SIZE})")),
    _hoarding("in_zeros", OUT_OF_SIGHT.replace("{made}", f"mmap.mmap(os.open('/dev/zero', os.O_RDWR), {SIZE})")),
    _hoarding("behind_a_ballast", BALLAST),
]
