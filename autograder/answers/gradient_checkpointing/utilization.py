"""Right and wrong ways to write `utilization`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.utilization import utilization

Model = dict[str, int]


def shape_by_shape(
    model: Model, recomputed: Sequence[str], tokens_per_second: float, peak: float
) -> tuple[float, float]:
    """The three products of every matrix by torch's own broadcasting of shapes, over a whole sequence."""
    tokens, width, heads, hidden = model["sequence"], model["width"], model["heads"], model["hidden"]
    size = width // heads

    def product(*shape: int) -> int:
        """2 m k n of (m, k) times (k, n), for as many heads as stand before."""
        return 2 * torch.Size(shape).numel()

    query, key = (tokens, width, width), (tokens, width, size * model["kv_heads"])
    parts: dict[str, list[tuple[int, ...]]] = {
        "scores": [(heads, tokens, size, tokens), (heads, tokens, tokens, size)],
        "mlp": [(tokens, width, hidden), (tokens, hidden, width)],
        "rest": [query, key, key, query],
    }
    flops: dict[str, int] = {name: sum(product(*shape) for shape in shapes) for name, shapes in parts.items()}
    flops |= {"nothing": 0, "block": sum(flops.values())}
    head = product(tokens, width, model["vocabulary"])
    forward = head + sum(flops["block"] for _ in recomputed)
    backward = forward * 2
    again = sum(map(flops.__getitem__, recomputed))
    sequences = tokens_per_second / tokens
    return (forward + backward) * sequences / peak, (forward + backward + again) * sequences / peak


def by_weights(model: Model, recomputed: Sequence[str], tokens_per_second: float, peak: float) -> tuple[float, float]:
    """Six FLOPs a weight, and twelve a position and number of the width."""
    d, layers = model["width"], len(recomputed)
    attention = 2 * d**2 + 2 * d * (d // model["heads"] * model["kv_heads"])
    mlp = 2 * d * model["hidden"]
    weights = layers * (attention + mlp) + d * model["vocabulary"]
    needed = 6 * weights + 12 * layers * d * model["sequence"]
    scores = recomputed.count("scores") + recomputed.count("block")
    mlps = recomputed.count("mlp") + recomputed.count("block")
    again = scores * 4 * d * model["sequence"] + mlps * 2 * mlp + recomputed.count("block") * 2 * attention
    mfu = needed * tokens_per_second / peak
    return mfu, mfu * (1 + again / needed)


RIGHT = (right(shape_by_shape, independent="the shapes of all products"), right(by_weights))

counted = partial(edited, utilization)

BLOCK = "2 * (2 * d * d + keys_and_values) + scores + mlp"
NEEDED = '3 * (len(recomputed) * block + 2 * d * model["vocabulary"])'
AGAIN = '"scores": scores, "mlp": mlp, "block": block}'
LAST = "needed * rate, (needed + again) * rate"
SHARED = 'model["kv_heads"] // model["heads"]'

WRONG = (
    wrong(
        "backward_as_forward",
        "You count backward as one forward. Each product has two of its size in backward: the gradient of its weights "
        "(or keys), and that of its inputs.",
        counted((NEEDED, NEEDED.replace("3 *", "2 *"))),
    ),
    wrong(
        "additions_forgotten",
        "A multiplication and an addition are two FLOPs, also by the vendors' count of the peak: your shares are half "
        "as large as they are.",
        counted(("rate = tokens_per_second", "rate = 0.5 * tokens_per_second")),
    ),
    wrong(
        "head_forgotten",
        "The last product, by the matrix from width to vocabulary, is missing.",
        counted((' + 2 * d * model["vocabulary"]', "")),
    ),
    wrong(
        "embedding_multiplied",
        "You count the embedding too. Looking up a row is no product: the vocabulary counts once, for the head.",
        counted(('2 * d * model["vocabulary"]', '4 * d * model["vocabulary"]')),
    ),
    wrong(
        "scores_forgotten",
        "You count 6 FLOPs a weight and nothing else. Attention multiplies queries with keys and weights with values, "
        "which have no parameters.",
        counted(('4 * model["sequence"] * d', "0")),
        counted((BLOCK, BLOCK.replace("scores + ", ""))),
    ),
    wrong(
        "half_of_the_scores",
        "Each query meets every key, and then every value: two products of 2 sequence width FLOPs a token. They are "
        "counted in full here, although the mask hides half of them.",
        counted(("4 * model", "2 * model")),
    ),
    wrong(
        "each_head_full_width",
        "A head's keys are width / heads long. All heads together take as many FLOPs as one head of the full width.",
        counted(("4 * model", '4 * model["heads"] * model')),
    ),
    wrong(
        "keys_as_queries",
        "Keys and values have kv_heads heads, which may be fewer than the queries': their two matrices are narrower.",
        counted((SHARED, "1")),
        counted((f"2 * d * d * {SHARED}", "2 * d * d")),
    ),
    wrong(
        "scores_shared",
        "Keys and values that are shared save no FLOPs of attention itself: every query head still meets each of them.",
        counted(("4 * model", f"4 * {SHARED} * model")),
        counted(('4 * model["sequence"] * d', f'4 * model["sequence"] * d * {SHARED}')),
    ),
    wrong(
        "mlp_four_wide",
        "You take the MLP for 4 x width wide. It is `hidden` wide.",
        counted(('4 * d * model["hidden"]', "16 * d * d")),
    ),
    wrong(
        "head_recomputed",
        "You repeat the whole forward. The head stands behind the last block and is not recomputed.",
        counted((LAST, LAST.replace("again", '(again + 2 * d * model["vocabulary"] * (again > 0))'))),
        counted((AGAIN, AGAIN.replace("block}", 'block + 2 * d * model["vocabulary"]}'))),
    ),
    wrong(
        "always_four_thirds",
        "You make HFU four thirds of MFU, whatever is recomputed. Add up what the words name; the head is in no block.",
        counted((LAST, LAST.replace("(needed + again)", "needed * 4 / 3"))),
    ),
    wrong(
        "all_blocks_recomputed",
        "You repeat all blocks alike. `recomputed` has a word for each block: add up what each of them names.",
        counted((LAST, LAST.replace("again", "block * len(recomputed) * (again > 0)"))),
        counted(("[each] for each in recomputed", "[recomputed[0]] for each in recomputed")),
    ),
    wrong(
        "each_word_once",
        "You count each word once. It stands once for each block that repeats it.",
        counted(("for each in recomputed", "for each in set(recomputed)")),
    ),
    wrong(
        "recomputed_with_backward",
        "Recomputation repeats the forward only. The backward of a recomputed block is done once, as without.",
        counted((LAST, LAST.replace("again", "3 * again"))),
        counted((AGAIN, AGAIN.replace(": scores", ": 3 * scores"))),
    ),
    wrong(
        "recomputation_in_mfu",
        "You count recomputation in MFU. The model does not need it: it belongs to HFU only, and more of it must not "
        "look like better use of the machine.",
        counted((LAST, LAST.replace("needed * rate,", "(needed + again) * rate,"))),
    ),
    wrong(
        "mfu_and_hfu_swapped",
        "You return HFU first. MFU comes first: it counts what the model needs, and is never the larger one.",
        counted((LAST, "(needed + again) * rate, needed * rate")),
    ),
    wrong(
        "only_whole_blocks",
        'You repeat something for "block" only.',
        counted((AGAIN, '"scores": 0, "mlp": 0, "block": block}')),
    ),
    wrong(
        "one_product_of_two",
        '"scores" repeats two products, with the keys and with the values, and "mlp" two, one for each of its '
        "matrices. You repeat one of them.",
        counted((AGAIN, AGAIN.replace(": scores", ": scores // 2"))),
        counted((AGAIN, AGAIN.replace(": mlp", ": mlp // 2"))),
    ),
    wrong(
        "part_of_the_block",
        '"block" repeats all products of the block: those of attention and of the MLP, and those with the matrices of '
        "queries, keys, values and output.",
        counted((AGAIN, AGAIN.replace(": block", ": scores + mlp"))),
        counted((AGAIN, AGAIN.replace(": block", ": block - scores"))),
    ),
    wrong(
        "first_input_without_gradient",
        "You leave out the gradient of the first block's input. Here every product's input needs one: what stands "
        "before the first block is trained too.",
        counted((NEEDED, f"{NEEDED} - 2 * (d * d + keys_and_values)")),
    ),
    wrong(
        "arguments_changed",
        "You change `model` or `recomputed`. They are the caller's: read them only.",
        counted(('model["vocabulary"]', 'model.pop("vocabulary")')),
        counted(("for each in recomputed", "for each in [recomputed.pop() for _ in [*recomputed]]")),
    ),
    wrong(
        "parts_swapped",
        'The word says what is repeated, not what is kept: "scores" repeats the two products of attention, and keeps '
        "the rest.",
        counted((AGAIN, '"scores": block - scores, "mlp": block - mlp, "block": block}')),
    ),
    wrong(
        "percent",
        "A share lies between 0 and 1: you return percent.",
        counted(("rate = tokens_per_second", "rate = 100 * tokens_per_second")),
    ),
)
