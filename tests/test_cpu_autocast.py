"""The lists of operators are those of the installed torch, and a CPU's autocast is measured beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from course.lessons.autocast_lists import HIGH, LOW, WIDEST
from course.lessons.experiments.cpu_autocast import rows, table

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
COMPOSED = {"cross_entropy"}  # of log_softmax and nll_loss, in HIGH too; the header has its parts


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (LOW, ("AT_FORALL_LOWER_PRECISION_FP",)),
        (HIGH, ("AT_FORALL_FP32", "AT_FORALL_FP32_SET_OPT_DTYPE", "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE")),
        (WIDEST, ("AT_FORALL_PROMOTE",)),
    ],
)
def test_each_operator_stands_in_the_list_of_torchs_header(names: frozenset[str], parts: tuple[str, ...]) -> None:
    text = HEADER.read_text()
    blocks = [re.search(rf"#define {part}\(_\)(.*?)\n\n", text, re.DOTALL) for part in parts]
    listed = {name for block in blocks if block for name in re.findall(r"_\((?:ADD_NS\()?(\w+)", block[1])}
    assert names - listed - COMPOSED == set()


def test_products_are_low_on_a_cpu_too_and_softmax_stays_as_it_comes() -> None:
    found = {row.name: row for row in rows()}
    assert found["matmul"].of_float32 == found["linear"].of_float32 == "bfloat16"
    assert found["softmax"].of_half == "bfloat16"
    assert [found[name].differs for name in ("softmax", "mse_loss", "relu")] == [True, False, False]
    assert len(table(rows()).splitlines()) == len(found) + 1
