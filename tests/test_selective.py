"""What a policy saves and recomputes in a block of the GPT."""

from __future__ import annotations

from course.lessons.experiments import planned, selective


def test_a_policy_that_recomputes_everything_costs_what_a_plain_checkpoint_costs() -> None:
    assert selective.cost(selective.with_policy(lambda _: "recompute")) == selective.cost(planned.torchs)


def test_products_saved_by_name_run_no_product_again_and_keep_less_than_everything() -> None:
    products = selective.with_policy(lambda op: "save" if "mm" in op or "attention" in op else "recompute")
    whole, chosen = selective.cost(selective.keep_all), selective.cost(products)
    assert chosen.flops == whole.flops
    assert 0 < chosen.kept < whole.kept


def test_without_a_checkpoint_a_block_keeps_its_measured_inside() -> None:
    bytes_, _, _ = planned.measured(*planned.problem())
    rounded = selective.cost(selective.keep_all).kept
    assert rounded == bytes_[0][1]


def test_only_products_and_the_attention_kernel_have_flops() -> None:
    counted = {name for name, each in selective.ops().items() if each.flops}
    assert counted == {"addmm", "_scaled_dot_product_flash_attention_for_cpu"}
