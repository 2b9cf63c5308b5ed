"""What a selective checkpoint saves: products, which are slow to compute again; all else is recomputed.

"aten" . name . overload     only the name tells what is computed
"""

from __future__ import annotations

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


def policy(op_name: str) -> str:
    """ "save" for matrix products, convolutions and attention kernels, such as "aten.mm.default"; else "recompute"."""
    name = op_name.split(".")[1]
    kernel = name.startswith("_scaled_dot_product") or "convolution" in name
    return "save" if kernel or name in PRODUCTS else "recompute"
