"""What ranks on gloo tell their launcher, and what they hold until it was received, without any process."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch

from course.cluster.calls import Call, Kind
from course.cluster.processes.messages import CHUNK, CallReader, LauncherLog
from course.cluster.processes.queues import HELD_BYTES, HELD_COUNT, LARGE_BYTES, HeldSends, Queues, WorkItem

FOUR = Kind(torch.float32, (4,))


@pytest.fixture
def ends():
    """A rank's log, and the launcher's reader."""
    pipe, other = multiprocessing.Pipe()
    read, written = multiprocessing.Pipe(duplex=False)
    yield LauncherLog(pipe, written), CallReader(read), written
    for each in (pipe, other, read, written):
        each.close()


def test_calls_are_read_as_they_were_made_with_what_has_ended(ends):
    log, reader, _ = ends
    one, other = Call("send", 0, (0, 1), 1, "", (FOUR,)), Call("barrier", 0, (0, 1))
    for number, call in enumerate((one, other, one)):
        assert log.called(call, is_async=call is other) == number
        log.ended(number)
    log.waits(1)
    log.computes(0.5, "matmul")
    messages = reader.messages()
    assert [each.what for each in messages] == ["called", "called", "called", "waits", "computes"]
    assert [each.data.call for each in messages[:3]] == [one, other, one]
    assert [each.data.is_async for each in messages[:3]] == [False, True, False]
    assert [[number for number, _ in each.ended] for each in messages] == [[], [0], [1], [2], []]
    assert [each.at for each in messages] == sorted(each.at for each in messages)
    assert reader.messages() == []


def test_a_message_that_has_come_in_part_is_read_when_the_rest_is_there(ends):
    log, reader, _ = ends
    groups = [tuple(range(count)) for count in (2, CHUNK // 2)]  # the second one's call is longer than a read
    writing = threading.Thread(target=lambda: [log.called(Call("barrier", 0, each), is_async=False) for each in groups])
    writing.start()
    found = []
    while len(found) < 2:
        found += reader.messages()
    writing.join()
    assert [each.data.call.group for each in found] == groups


def test_what_a_rank_has_written_is_read_after_its_death(ends):
    log, reader, written = ends
    log.called(Call("barrier", 0, (0, 1)), is_async=False)
    written.close()
    assert [each.what for each in reader.messages()] == ["called"]
    assert not reader.is_open


class Sent:
    """A message that is received when the test says so."""

    def __init__(self):
        self.received, self.waited = threading.Event(), 0

    def wait(self):
        self.received.wait()
        self.waited += 1


@pytest.mark.parametrize(("count", "size"), [(HELD_COUNT, 1), (2, HELD_BYTES // 2)])
def test_sent_messages_are_held_until_they_are_many_and_then_let_go_once_each(count, size):
    queues, sent, threads = Queues(), [Sent() for _ in range(count)], threading.active_count()
    held = HeldSends(queues)
    data = torch.empty(size, dtype=torch.uint8)
    for place, each in enumerate(sent):
        assert threading.active_count() == threads
        held.add(place % 2, each, data, False)
    for each in reversed(sent):  # a message that nobody receives keeps none of another way
        each.received.set()
    for each in [thread for thread in threading.enumerate() if thread.daemon and thread.name in ("0", "1")]:
        each.join()
    assert [each.waited for each in sent] == [1] * count


def test_memory_of_large_messages_is_used_again_when_they_were_received():
    queues, large, small = Queues(), torch.arange(LARGE_BYTES // 4, dtype=torch.int32), torch.ones(4)
    held, count = HeldSends(queues), HELD_BYTES // LARGE_BYTES
    sent = [Sent() for _ in range(count)]
    copies = [held.copied(large) for _ in sent]
    places = {each.data_ptr() for each in copies}
    assert len(places) == count
    for each, data in zip(sent, copies, strict=True):
        held.add("to 1", each, data, True)
    assert held.copied(large).data_ptr() not in places  # nobody has received
    for each in sent:
        each.received.set()
    queues.put("to 1", WorkItem(lambda: None)).wait()
    again, other = held.copied(large.flip(0)), held.copied(large.float())
    assert again.data_ptr() in places
    assert torch.equal(again, large.flip(0))
    assert other.data_ptr() not in places
    assert held.copied(small).data_ptr() != small.data_ptr()
