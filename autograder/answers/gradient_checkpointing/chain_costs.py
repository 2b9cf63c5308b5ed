"""Right and wrong ways to write `chain_costs`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.chain_costs import chain_costs


def played(sizes: Sequence[int], cuts: Sequence[int]) -> tuple[int, int]:
    """Forward and backward are played through, with a dict of what is alive."""
    n = len(sizes)
    if [*cuts] != sorted({0, *cuts}) or cuts[0] < 0 or cuts[-1] >= n:
        raise ValueError("cuts make no sense")
    calls, peak = n, 0
    alive = {i: sizes[i] for i in range(n) if i in cuts or i >= cuts[-1]}
    for layer in reversed(range(n)):
        if layer not in alive:
            at = max(alive)
            while at < layer:
                calls, at = calls + 1, at + 1
                alive[at] = sizes[at]
        peak = max(peak, sum(alive.values()))
        del alive[layer]
    return calls, peak


def closed(sizes: Sequence[int], cuts: Sequence[int]) -> tuple[int, int]:
    """A closed form for the calls; NumPy's sums by segment, of ints of Python's."""
    at = np.array([*cuts, len(sizes)])
    if len(cuts) == 0 or at[0] != 0 or (np.diff(at) <= 0).any():
        raise ValueError("cuts make no sense")
    inputs = np.array(sizes, dtype=object)
    before = np.cumsum(inputs[at[:-1]]) - inputs[at[:-1]]
    peak = (before + np.add.reduceat(inputs, at[:-1])).max()
    return len(sizes) + cuts[-1] - len(cuts) + 1, peak


def backwards(sizes: Sequence[int], cuts: Sequence[int]) -> tuple[int, int]:
    """From the last segment to the first, with the checkpoints' sums looked up."""
    if not cuts or cuts[0] or max(cuts) >= len(sizes) or any(b <= a for a, b in pairwise(cuts)):
        raise ValueError(cuts)
    kept = [0, *accumulate(sizes[cut] for cut in cuts)]
    end, peak, again = len(sizes), 0, 0
    for number in range(len(cuts) - 1, -1, -1):
        peak = max(peak, kept[number] + sum(sizes[cuts[number] : end]))
        again += end - cuts[number] - 1 if end < len(sizes) else 0
        end = cuts[number]
    return len(sizes) + again, peak


RIGHT = (right(played, independent="the two passes are played through"), right(closed), right(backwards))

edit, in_numpy = partial(edited, chain_costs), partial(edited, closed)

PEAK = "peak = max(peak, checkpoints + sum(sizes[start + 1 : end]))"

WRONG = (
    wrong(
        "largest_segment",
        "You look at the segment with the most bytes of its own, and at the last one. Checkpoints before it are alive "
        "as well: a smaller segment behind more of them may be the peak. Compare all.",
        in_numpy(
            (
                "peak = (before + np.add.reduceat(inputs, at[:-1])).max()",
                "own = np.add.reduceat(inputs, at[:-1])\n"
                "    peak = max((before + own)[[*([int(own[:-1].argmax())] if len(own) > 1 else []), -1]])",
            )
        ),
    ),
    wrong(
        "last_segment_again",
        "You run the last segment again. The forward pass has kept all its inputs: backward begins with it at once.",
        edit(("        if end < n:  # the last segment keeps its inputs\n            ", "        ")),
    ),
    wrong(
        "last_layers_again",
        "You run a whole segment again. Its last layer gives what the next segment begins with, and backward has been "
        "there already: a segment of k layers costs k - 1 evaluations.",
        edit(("end - start - 1", "end - start")),
    ),
    wrong(
        "both_again",
        "You evaluate every layer twice. The last segment is not run again, and of the others the last layer is not.",
        edit(("return evaluations, peak", "return 2 * n, peak")),
    ),
    wrong(
        "forward_not_counted",
        "You count what backward runs again. The n evaluations of the forward pass come first.",
        edit(("evaluations, checkpoints, peak = n, 0, 0", "evaluations, checkpoints, peak = 0, 0, 0")),
    ),
    wrong(
        "all_checkpoints_to_the_end",
        "You add the largest segment to all checkpoints. When backward works in a segment, the checkpoints after it "
        "are freed.",
        edit((PEAK, "peak = max(peak, sum(sizes[i] for i in cuts) + sum(sizes[start + 1 : end]))")),
    ),
    wrong(
        "only_when_backward_begins",
        "You look at the moment when backward begins. A segment before it may be larger, when it is run again.",
        edit((PEAK, "peak = checkpoints + sum(sizes[start + 1 : end])")),
    ),
    wrong(
        "own_checkpoint_twice",
        "You count the checkpoint of the segment at work twice: with the checkpoints, and with the segment's inputs.",
        edit(("sizes[start + 1 : end]", "sizes[start:end]")),
    ),
    wrong(
        "own_checkpoint_missing",
        "The checkpoint of the segment at work is there too: backward ends with its first layer, and needs its input.",
        edit((PEAK, "peak = max(peak, checkpoints - sizes[start] + sum(sizes[start + 1 : end]))")),
    ),
    wrong(
        "checkpoints_missing",
        "You count the segment at work alone. The checkpoints before it are kept until backward comes to them.",
        edit((PEAK, "peak = max(peak, sum(sizes[start:end]))")),
    ),
    wrong(
        "next_checkpoint_too",
        "You count the input of the next segment as well. It was freed before this segment was run again.",
        edit(("sizes[start + 1 : end]", "sizes[start + 1 : end + 1]")),
    ),
    wrong(
        "nothing_freed",
        "You free nothing: in the end all inputs are there. A segment's inputs go when backward is through with it.",
        edit((PEAK, "peak = max(peak, sum(sizes))")),
    ),
    wrong(
        "number_of_inputs",
        "You count inputs. Each has a size of its own, in bytes.",
        edit(("checkpoints += sizes[start]", "checkpoints += 1"), ("sum(sizes[start + 1 : end])", "end - start - 1")),
    ),
    wrong(
        "tail_dropped",
        "You leave out the last segment: it begins at the last cut and ends at n.",
        edit(("segments = [*pairwise([*cuts, n])]", "segments = [*pairwise(cuts)]")),
    ),
    wrong(
        "the_wrong_way_round",
        "You return (peak, evaluations). The evaluations come first.",
        edit(("return evaluations, peak", "return peak, evaluations")),
    ),
    wrong(
        "lists_changed",
        "You change one of the caller's lists: you append n to `cuts`, say, or take something out of `sizes`. Make a "
        "new one: [*cuts, n].",
        edit(("segments =", "cuts.append(n)\n    segments ="), ("pairwise([*cuts, n])", "pairwise(cuts)")),
        edit(
            ("    n = len(sizes)", "    n = len(sizes)\n    cuts.append(n)"),
            ("if not cuts or", "if cuts == [n] or"),
            ("[*cuts, n]", "cuts"),
            ("    return", "    cuts.pop()\n    return"),
        ),
        edit(("    return", "    sizes[:] = map(float, sizes)\n    return")),
        edit(("    return", "    sizes.clear()\n    return")),
        fails=("lists_unchanged",),
    ),
    wrong(
        "numbers_of_another_kind",
        "You return a float or a number of NumPy's or torch's, or add up in them: from 2**53 on a float leaves out "
        "bytes, and from 2**63 on NumPy's and torch's sums wrap around. Add up and return ints of Python's: they hold "
        "any number of bytes exactly.",
        edit(("return evaluations, peak", "return evaluations, float(peak)")),
        in_numpy((", dtype=object", "")),
        in_numpy((", dtype=object", ""), (", peak", ", int(peak)")),
        in_numpy(("=object", "=np.uint64"), (", peak", ", int(peak)")),
        in_numpy((", dtype=object", ").astype(np.int32"), (", peak", ", int(peak)")),
        fails=("whole_numbers",),
    ),
    wrong(
        "refuses_short_segments",
        "You refuse segments of one layer. Two cuts may be neighbours, the last may be n - 1, and n may be 1.",
        edit(("start >= end for", "start + 1 >= end for")),
    ),
    wrong(
        "cuts_not_looked_at",
        "Look at cuts before you use them: they may be empty, begin elsewhere, stand still, go back, or reach n. An "
        "IndexError of their own will not do.",
        edit(("if not cuts or cuts[0] != 0:", "if False:"), ("if any(", "if False and any(")),
        edit(("if not cuts or ", "if ")),
        edit(("cuts[0] != 0", "0 not in cuts")),
        edit(("start >= end for", "start > end for")),
        edit(("    if not cuts or", "    if len(cuts) == 1:\n        return n, sum(sizes)\n    if not cuts or")),
        edit(("start >= end for start, end in segments", "start > end for start, end in segments[:-1]")),
        edit(("start >= end for start, end in segments", "start >= end for start, end in segments[:-1]")),
        fails=("refusals",),
    ),
)
