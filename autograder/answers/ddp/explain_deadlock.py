"""Right and wrong ways to write `explain_deadlock`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.explain_deadlock import explain_deadlock


def told_by_difflib(trace: Sequence[Sequence[dict[str, Any]]]) -> tuple[int, int, str]:
    """The rank that agrees least with the others, and how difflib would turn a right list into its own."""
    size = len(trace)
    texts = []
    for rank, calls in enumerate(trace):
        shifted = [dict(c, peer=(c["peer"] + size - rank) % size) if c["verb"] in "send recv" else c for c in calls]
        texts.append([json.dumps(c, sort_keys=True) for c in shifted])
    alike = [[agreed(a, b) for b in texts] for a in texts]
    culprit = min(range(size), key=lambda rank: (sum(alike[rank]) - alike[rank][rank], -rank))
    good, bad = texts[(culprit + 1) % size], texts[culprit]
    codes = difflib.SequenceMatcher(None, good, bad, autojunk=False).get_opcodes()
    at = alike[culprit][(culprit + 1) % size]
    kinds = [code[0] for code in codes if code[1] <= at + 2 and code[0] != "equal"]
    wanted, made = json.loads(good[at]), json.loads(bad[at])
    after = good[at + 2 :], bad[at + 2 :]
    if good[at : at + 2] == bad[at : at + 2][::-1] and agreed(*after) == min(map(len, after)):
        return culprit, at, "wrong order"
    if kinds[0] == "replace":
        what = next(word for word in ("peer", "shape", "op") if wanted[word] != made[word])
        rooted = what == "peer" and made["verb"] not in ("send", "recv")
        return culprit, at, "wrong root" if rooted else f"wrong {what}"
    return culprit, at, "missing call" if kinds[0] == "delete" else "extra call"


def agreed(a: Sequence[str], b: Sequence[str]) -> int:
    """How many calls two lists have in common before they differ."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def by_mending(trace: Any) -> list[Any]:
    """Each cure is tried on the list of the rank at fault: that which makes it agree tells the reason."""
    keys = [[key(call, rank, len(trace)) for call in calls] for rank, calls in enumerate(trace)]
    index = 0
    while len({calls[index] for calls in keys}) == 1:
        index += 1
    here = [calls[index] for calls in keys]
    rank = 1 if len(here) == 2 else next(r for r in range(len(here)) if here.count(here[r]) == 1)
    model, mine = keys[rank - 1], keys[rank]
    cures = {
        "wrong order": [*mine[:index], *mine[index : index + 2][::-1], *mine[index + 2 :]],
        "extra call": mine[:index] + mine[index + 1 :],
        "missing call": [*mine[:index], model[index], *mine[index:]],
    }
    for reason, mended in cures.items():
        if all(x == y for x, y in zip(mended, model, strict=False)):
            return [rank, index, reason]
    got, want = mine[index], model[index]
    position = next(n for n in range(4) if got[n] != want[n])
    return [rank, index, "wrong " + ["verb", "root" if got[4] else "peer", "shape", "op"][position]]


def by_votes(trace: Any) -> tuple[Any, ...]:
    """The rank with which the fewest others agree at the first difference; then its list and the next rank's."""
    ranks = range(len(trace))
    lists = [[seen_from(rank, call, len(trace)) for call in trace[rank]] for rank in ranks]
    place = 0
    while all(calls[place] == lists[0][place] for calls in lists):
        place += 1
    votes = [sum(lists[rank][place] == other[place] for other in lists) for rank in ranks]
    culprit = 1 if len(trace) == 2 else votes.index(min(votes))
    mine, model = lists[culprit], lists[culprit - 1]
    place = [a == b for a, b in zip(mine, model, strict=False)].index(False)
    a, b = mine[place:], model[place:]
    if a[:2] == b[:2][::-1] and alike(a[2:], b[2:]):
        return culprit, place, "wrong order"
    if alike(a, b[1:]):
        return culprit, place, "missing call"
    if alike(a[1:], b):
        return culprit, place, "extra call"
    words = ("verb", "root" if a[0][0] in ("broadcast", "reduce") else "peer", "shape", "op")
    return culprit, place, "wrong " + next(w for w, x, y in zip(words, a[0], b[0], strict=True) if x != y)


def seen_from(rank: int, call: dict[str, Any], size: int) -> list[Any]:
    """A call with its peer as a distance."""
    peer = (call["peer"] - rank) % size if call["verb"] in {"send", "recv"} else call["peer"]
    return [call["verb"], peer, call["shape"], call["op"]]


def alike(a: list[Any], b: list[Any]) -> bool:
    """As far as the shorter one goes."""
    return all(x == y for x, y in zip(a, b, strict=False))


def key(call: dict[str, Any], rank: int, size: int) -> tuple[str, int | None, str, str | None, bool]:
    """What two ranks must have alike."""
    peer, rooted = call["peer"], call["verb"] in ("broadcast", "reduce")
    if call["verb"] == "send":
        peer = (peer - rank) % size
    elif call["verb"] == "recv":
        peer = (rank - peer) % size
    return call["verb"], peer, str(call["shape"]), call["op"], rooted


RIGHT = (right(told_by_difflib, independent="difflib.SequenceMatcher"), right(by_mending), right(by_votes))

edit, mended, voted = (partial(edited, each) for each in (explain_deadlock, by_mending, by_votes))
SWAPPED = '"wrong order": [*mine[:index], *mine[index : index + 2][::-1]]'
MODEL = "model, mine = keys[rank - 1], keys[rank]"
ODD = "next(r for r in range(len(here)) if here.count(here[r]) == 1)"
FIRST_ODD = "min(range(len(here)), key=lambda r: here.count(here[r]))"
FORTH, BACK = "peer = (peer - rank) % size", "peer = (rank - peer) % size"
DISTANCE = "(peer - rank) % size if is_message else None"
USUAL = "Counter(calls).most_common(1)[0][0]"
RETURN = "return rank, index, _reason("
FOLLOWS = " and _agree(mine[2:], right[2:])"
COMMENT = "  # b a c, not b a: a may be left out of a b a"
ORDER = f'if mine[:2] == [right[1], right[0]]{FOLLOWS}:{COMMENT}\n        return "wrong order"\n    '
MISSING, EXTRA = "_agree(mine, right[1:])", "_agree(mine[1:], right)"
IF_MISSING = f'    if {MISSING}:\n        return "missing call"\n'
IF_EXTRA = f'    if {EXTRA}:\n        return "extra call"\n'
ORDERED = "    if mine[:2] =="
NAMED = ("\n\ndef _reason", '\n\nPARTS = ("verb", "peer", "root", "shape", "op")\n\n\ndef _reason')
ARGUMENT = 'next(f"wrong {name}" for name, a, b in zip(PARTS, mine[0], right[0], strict=True) if a != b)'
AS_FAR = "all(a == b for a, b in zip(some, others, strict=False))"
VOTED = "1 if len(trace) == 2 else votes.index(min(votes))"
LAST_VOTED = "max(rank for rank in ranks if votes[rank] == min(votes))"
FIRST_OTHER = "next(rank for rank in ranks if lists[rank][place] != lists[0][place])"
APART = '(call["peer"] - rank) % size if call["verb"] in {"send", "recv"} else call["peer"]'
AS_THEY_ARE, NOT_AROUND = (APART, 'call["peer"]'), (APART, APART.replace(" % size", ""))
CULPRIT = f"culprit = {VOTED}"
BEHIND, AHEAD = "lists[culprit - 1]", "lists[(culprit + 1) % len(trace)]"
PICKS = ((VOTED, VOTED), (VOTED, LAST_VOTED), (VOTED, FIRST_OTHER))

WRONG = (
    wrong(
        "looks_two_calls_ahead",
        "You hold the next calls of both lists against each other, and not all that follow. Where two calls take "
        "turns, a b a b, the lists agree for a while whichever of them you move: go on as far as both go.",
        edit((AS_FAR, AS_FAR.replace("others,", "others[:2],"))),
        edit(
            (AS_FAR, AS_FAR.replace("others,", "others[:2],")),
            (IF_MISSING + IF_EXTRA, IF_EXTRA + IF_MISSING),
        ),
    ),
    wrong(
        "passes_over_the_first_call",
        "You compare the lists from their second call on. The first one, whose place is 0, may be the mistake.",
        edit(("        usual =", "        if index == 0:\n            continue\n        usual =")),
        mended(("index = 0", "index = 1")),
    ),
    wrong(
        "blames_the_shortest_list",
        "You blame the rank that has made the fewest calls. A rank whose program is right may stand still first, "
        "because another one never came: compare what they called.",
        edit((RETURN, "rank = min(range(size), key=lambda each: len(lists[each]))\n                " + RETURN)),
        mended((MODEL, f"rank = min(range(len(keys)), key=lambda each: len(keys[each]))\n    {MODEL}")),
        voted((CULPRIT, "culprit = min(ranks, key=lambda each: len(lists[each]))")),
        voted((CULPRIT, "culprit = min(ranks, key=lambda each: len(lists[each]))"), (BEHIND, AHEAD)),
    ),
    wrong(
        "blames_the_longest_list",
        "You blame the rank that has made the most calls. The others may wait for it, or it for them: compare what "
        "they called.",
        edit((RETURN, "rank = max(range(size), key=lambda each: len(lists[each]))\n                " + RETURN)),
    ),
    wrong(
        "peers_as_they_are",
        "You compare the peers of messages as numbers. On a ring each rank has another neighbour: compare how far the "
        "peer is away from the rank.",
        edit((DISTANCE, "peer if is_message else None")),
        mended((FORTH, "peer = call['peer']"), (BACK, "peer = call['peer']"), (ODD, FIRST_ODD)),
        *(voted(AS_THEY_ARE, pick) for pick in PICKS),
        *(voted(AS_THEY_ARE, pick, (BEHIND, AHEAD)) for pick in PICKS),
    ),
    wrong(
        "peers_not_around_the_ring",
        "The distance to a peer goes around the ring: take it modulo the number of ranks, or the last rank, whose next "
        "one is rank 0, seems to differ.",
        edit((DISTANCE, "peer - rank if is_message else None")),
        mended((FORTH, "peer -= rank"), (BACK, "peer = rank - peer"), (ODD, FIRST_ODD)),
        *(voted(NOT_AROUND, pick) for pick in PICKS),
        *(voted(NOT_AROUND, pick, (BEHIND, AHEAD)) for pick in PICKS),
    ),
    wrong(
        "roots_as_distances",
        "You compare roots as distances. The root of a collective is one rank, the same number for all.",
        edit(
            (
                '("send", "recv")\n    distance',
                '("send", "recv")\n    peer = peer if peer is None else (peer - rank) % size\n    distance',
            ),
            (DISTANCE, "peer if is_message else None"),
        ),
    ),
    wrong(
        "rank_0_is_always_right",
        "You hold all lists against rank 0's. Where rank 0 is at fault, you blame another: of three ranks or more the "
        "one that differs from most is wrong.",
        edit((USUAL, "calls[0]")),
        voted((VOTED, FIRST_OTHER)),
        voted((VOTED, FIRST_OTHER), (BEHIND, AHEAD)),
    ),
    wrong(
        "rank_1_of_two_is_right",
        "Of two ranks rank 0 is right, and you take rank 1's program for the right one.",
        edit((USUAL, "Counter(calls[::-1]).most_common(1)[0][0]")),
        mended(("rank = 1 if", "rank = 0 if")),
    ),
    wrong(
        "where_it_stands",
        "You return the place where the rank at fault stands. It has gone on after its mistake: return the first call "
        "that differs.",
        edit((RETURN, "return rank, len(lists[rank]) - 1, _reason(")),
    ),
    wrong(
        "counted_from_1",
        "Calls are counted from 0, as in every Python list.",
        edit((RETURN, "return rank, index + 1, _reason(")),
    ),
    wrong(
        "reason_by_length",
        "You tell the reason by the lengths of the lists. A rank that leaves out the last call of a step goes on into "
        "the next one, and has the longer list: compare what follows the first difference.",
        edit((MISSING, "len(mine) < len(right)"), (EXTRA, "len(mine) > len(right)")),
    ),
    wrong(
        "lists_must_end_together",
        "You demand that the lists agree to their ends. One of them may end before: compare as far as both go.",
        edit((AS_FAR, "some == others")),
        edit((AS_FAR, "len(some) <= len(others) and " + AS_FAR)),
    ),
    wrong(
        "swapped_is_missing",
        "Where two calls are swapped you say that one is missing, because the next one stands in its place. Look at "
        "the call after it, too: the missing one is there.",
        edit((ORDER, ""), (MISSING, "mine[0] == right[1]")),
        edit((ORDER, 'if mine[0] == right[1]:\n        return "missing call"\n    ')),
    ),
    wrong(
        "order_by_two_calls",
        "Two calls look swapped, and you do not look further. Of a b a one may be left out, or a b may get another b "
        "ahead: what follows then agrees only when it is moved.",
        edit((FOLLOWS, "")),
        mended(('"wrong order": [*mine[:index], *mine[index : index + 2][::-1], *mine[index + 2 :]]', SWAPPED)),
    ),
    wrong(
        "argument_where_verbs_agree",
        "Where the two calls have one verb, you say that an argument is wrong. One of several calls of a verb may be "
        "missing, or two of them swapped: look at what follows first.",
        edit((ORDERED, f"    if mine[0][0] == right[0][0]:\n        return {ARGUMENT}\n{ORDERED}"), NAMED),
        edit((ORDERED, ORDERED.replace("if", "if mine[0][0] != right[0][0] and"))),
    ),
    wrong(
        "missing_for_extra",
        "You have exchanged missing and extra calls: a call is missing where the rank at fault is one ahead of the "
        "others.",
        edit(
            (MISSING, "_agree(mine[1:], right)"),
            (
                'return "missing call"\n    if _agree(mine[1:], right)',
                'return "missing call"\n    if _agree(mine, right[1:])',
            ),
        ),
    ),
    wrong(
        "no_word_for_a_root",
        "A broadcast or a reduce has a root, and a message has a peer: tell one from the other.",
        edit(('"peer", "root",', '"peer", "peer",')),
        edit(('"peer", "root",', '"root", "root",')),
    ),
    wrong(
        "verbs_alone",
        "You compare verbs only. Two calls of one verb may differ in peer, root, shape or op.",
        edit(
            (USUAL, USUAL.replace("calls", "verbs")),
            ("usual =", "verbs = [call[0] for call in calls]\n        usual ="),
            ("if call != usual", "if call[0] != usual"),
            ("calls.index(usual)", "verbs.index(usual)"),
        ),
    ),
)
