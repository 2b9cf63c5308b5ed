"""Right and wrong ways to write `step_seconds`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.ddp.step_seconds import step_seconds

Lists = Sequence[Sequence[int]]


def longest_path(
    backward: Sequence[float], sizes: Sequence[int], buckets: Lists, *, ranks: int, latency: float, bandwidth: float
) -> tuple[float, float]:
    """The end is that of the longest way through the picture: some layers, then all reductions from one bucket on."""
    done = np.cumsum(np.asarray(backward)[::-1])[::-1]
    whole = np.array([sum(sizes[layer] for layer in bucket) for bucket in buckets], dtype=np.float64)
    takes = 2 * (ranks - 1) * latency + 2 * (1 - 1 / ranks) * whole / bandwidth
    left = np.cumsum(takes[::-1])[::-1]
    ways = [done[list(bucket)].max() + rest for bucket, rest in zip(buckets, left, strict=True)]
    return float(max(done[0], *ways)), float(2 * whole.sum() * (ranks - 1) / ranks)


def by_events(
    backward: Sequence[float], sizes: Sequence[int], buckets: Lists, *, ranks: int, latency: float, bandwidth: float
) -> tuple[float, float]:
    """Backward is played layer by layer; the network takes the next bucket when it can."""
    gone: set[int] = set()
    now = free = 0.0
    queue, sent = [*buckets], 0
    for layer in range(len(backward) - 1, -1, -1):
        now += backward[layer]
        gone.add(layer)
        while queue and gone.issuperset(queue[0]):
            chunk = sum(sizes[each] for each in queue.pop(0)) // ranks
            free = max(now, free)
            for _ in range(2 * ranks - 2):
                free += latency + chunk / bandwidth
                sent += chunk
    return max(now, free), sent


RIGHT = (right(longest_path, independent="NumPy's running sums, and the longest path"), right(by_events))

edit = partial(edited, step_seconds)
OVER = "over = max(over, complete) + 2 * (ranks - 1) * (latency + message / bandwidth)"
WHOLE = "(latency + ranks * message / bandwidth)"
SENT = "sent += 2 * (ranks - 1) * message"


def over(new: str, *more: tuple[str, str]) -> Answer:
    """Another line for when a reduction is over."""
    return edit((OVER, new), *more)


def costing(seconds: str, *more: tuple[str, str]) -> Answer:
    """Other seconds for a reduction."""
    return over(f"over = max(over, complete) + {seconds}", *more)


WRONG = (
    wrong(
        "nothing_overlaps",
        "You add all reductions to all of backward: they begin at its end, or backward waits for each. A bucket "
        "travels while backward goes on, and nothing is waited for before the end.",
        over(OVER.replace("complete", "done[0]")),
        over(
            "takes = 2 * (ranks - 1) * (latency + message / bandwidth)\n        over = max(over, complete) + takes\n"
            "        done = [each + takes for each in done]",
        ),
    ),
    wrong(
        "the_longer_of_both",
        "You compare the sum of all reductions with the whole of backward. The network is idle until the first bucket "
        "is complete, and backward is over when the last one begins.",
        over(OVER.replace("max(over, complete)", "over")),
    ),
    wrong(
        "the_last_one_alone",
        "You add the last bucket to the end of backward. It may have to wait for the ones before it, and where the "
        "last layers have nothing to reduce it is over before backward is.",
        over(OVER.replace("max(over, complete)", "done[0]")),
    ),
    wrong(
        "the_list_backwards",
        "You go through the list of buckets from its end. They are reduced in the order of the list.",
        edit(("for bucket in buckets:", "for bucket in reversed(buckets):")),
    ),
    wrong(
        "complete_before_its_layer",
        "A bucket is complete when its last layer has been passed, not when that layer begins.",
        edit(("max(done[layer] for layer in bucket)", "max(done[layer] - backward[layer] for layer in bucket)")),
    ),
    wrong(
        "frozen_layers_take_no_time",
        "Backward passes the layers in no bucket, too: their seconds count, though nothing of them is sent.",
        edit(
            (
                "done = [*accumulate(reversed(backward))][::-1]",
                "sent_too = {layer for bucket in buckets for layer in bucket}\n"
                "    done = [seconds * (layer in sent_too) for layer, seconds in enumerate(backward)]\n"
                "    done = [*accumulate(reversed(done))][::-1]",
            )
        ),
    ),
    wrong(
        "first_or_last_bucket",
        "You look at two ways: the first bucket and then the network without a pause, or backward and then the last "
        "bucket. The network may wait in between, and then have a large one to send: go through them one by one.",
        edited(longest_path, ("*ways", "ways[0], ways[-1]")),
    ),
    wrong(
        "all_at_once",
        "Your reductions travel at the same time, each as fast as if it had the network for itself. They go one after "
        "another: a bucket also waits until the one before it is over.",
        over(
            OVER.replace("max(over, complete)", "complete"),
            ("    return max(over,", "    return max(ends,"),
            ("sent = 0.0, 0.0", "sent, ends = 0.0, 0.0, 0.0"),
            (SENT, SENT + "\n        ends = max(ends, over)"),
        ),
    ),
    wrong(
        "complete_with_the_last_of_its_list",
        "You take a bucket to be complete with the last number in its list. The order inside a bucket says nothing: it "
        "is complete when backward has passed all of its layers.",
        edit(("max(done[layer] for layer in bucket)", "done[bucket[-1]]")),
    ),
    wrong(
        "complete_with_its_first_layer",
        "A bucket begins before all its gradients are there: you take the first of its layers that backward comes to.",
        edit(("max(done[layer]", "min(done[layer]")),
        edit(("max(done[layer] for layer in bucket)", "done[bucket[0]]")),
    ),
    wrong(
        "forward_through_the_layers",
        "Backward begins with the last layer. You go through them from the first one on.",
        edit(
            ("[*accumulate(reversed(backward))][::-1]", "[*accumulate(backward)]"),
            ("max(over, done[0])", "max(over, done[-1])"),
        ),
    ),
    wrong(
        "as_they_are_complete",
        "You take the buckets in the order in which they are complete. All ranks must agree on an order, so it is that "
        "of the list: a bucket that is complete early waits for those before it.",
        edit(
            (
                "for bucket in buckets:",
                "for bucket in sorted(buckets, key=lambda each: max(done[layer] for layer in each)):",
            )
        ),
    ),
    wrong(
        "one_latency",
        "You count one latency for a reduction, or two, or one for both of its halves. Every one of its 2 (P - 1) "
        "messages has one, and begins when the one before has come.",
        costing("latency + 2 * (ranks - 1) * message / bandwidth"),
        costing("2 * (latency + (ranks - 1) * message / bandwidth)"),
        costing("(ranks - 1) * (latency + 2 * message / bandwidth)"),
    ),
    wrong(
        "no_latency",
        "You count bytes alone. Every message has a latency, too.",
        costing("2 * (ranks - 1) * message / bandwidth"),
    ),
    wrong(
        "a_latency_for_each_layer",
        "The gradients of a bucket travel together: a message has one latency, however many layers are in it.",
        costing("2 * (ranks - 1) * (len(bucket) * latency + message / bandwidth)"),
    ),
    wrong(
        "half_of_the_messages",
        "After P - 1 messages every rank has the sum of one chunk alone. It takes P - 1 more until all ranks have all.",
        over(OVER.replace("2 * (ranks", "(ranks")),
        over(OVER.replace("2 * (ranks", "(ranks"), (SENT, SENT.replace("2 * ", ""))),
        edit((SENT, SENT.replace("2 * ", ""))),
    ),
    wrong(
        "one_message_too_many",
        "A chunk meets the P - 1 other ranks, so there are P - 1 messages in each half, not P.",
        over(OVER.replace("(ranks - 1)", "ranks")),
        over(OVER.replace("(ranks - 1)", "ranks"), (SENT, SENT.replace("(ranks - 1)", "ranks"))),
    ),
    wrong(
        "whole_buckets",
        "You send whole buckets: in every message, in one, or there and back. Each of the 2 (P - 1) messages holds one "
        "of P chunks.",
        edit(("for layer in bucket) / ranks", "for layer in bucket)")),
        costing(f"2 * (ranks - 1) * {WHOLE}"),
        costing(f"(ranks - 1) * {WHOLE}"),
        costing(f"(ranks - 1) * {WHOLE}", (SENT, "sent += ranks * (ranks - 1) * message")),
        costing(WHOLE),
        costing(WHOLE, (SENT, "sent += ranks * message")),
        costing(f"2 * {WHOLE}"),
        costing(f"2 * {WHOLE}", (SENT, "sent += 2 * ranks * message")),
    ),
    wrong(
        "messages_of_one_rank",
        "One rank has nobody to send to: no message, and no byte. But its backward takes time, too.",
        costing("2 * max(ranks - 1, 1) * (latency + message / bandwidth)"),
        costing(
            "2 * max(ranks - 1, 1) * (latency + message / bandwidth)", (SENT, "sent += 2 * max(ranks - 1, 1) * message")
        ),
        edit(("    over, sent = 0.0, 0.0", "    over, sent = 0.0, 0.0\n    if ranks == 1:\n        return over, sent")),
    ),
    wrong(
        "rounds_of_a_tree",
        "You count log2 P rounds. A ring takes P - 1 messages until a chunk has met all ranks.",
        costing("2 * (ranks - 1).bit_length() * (latency + message / bandwidth)"),
    ),
    wrong(
        "reductions_alone",
        "The step is over when backward is over, too. Where the last layers have nothing to reduce, it ends last.",
        edit(("max(over, done[0])", "over")),
    ),
    wrong(
        "bytes_that_come_too",
        "You count what a rank sends and what it receives, or what all ranks send together, or whole buckets in place "
        "of their chunks.",
        edit((SENT, SENT.replace("2 *", "4 *"))),
        edit((SENT, SENT + " * ranks")),
    ),
    wrong(
        "bytes_of_the_gradients",
        "The bytes are those of the gradients. An all-reduce sends nearly twice as many, in 2 (P - 1) messages.",
        edit((SENT, "sent += ranks * message")),
        edit((SENT, "sent += 2 * ranks * message")),
    ),
    wrong(
        "frozen_bytes",
        "You count the bytes of layers that are in no bucket.",
        edit(("done[0]), sent", "done[0]), 2 * (ranks - 1) * sum(sizes) / ranks")),
    ),
)
