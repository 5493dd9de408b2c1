"""Pulls of leased messages. Leases of messages that are missing, filtered out or not in turn are released.

If a queue cannot be read now, its lease is released uncounted and the queue is reported. Any other failure of the log
releases all leases and is raised.
"""

import asyncio
from collections.abc import Container, Sequence
from typing import NamedTuple

from mqgate.consumption.group_log import GroupLog
from mqgate.core.entries import Group
from mqgate.core.errors import QueueUnavailable
from mqgate.core.lease import Grant, Lease, OffsetRange, PullReport
from mqgate.core.message import Message, body_of
from mqgate.ports.lease_store import LeaseStore

_NONE: frozenset[str] = frozenset()


class DeliveredBatch(NamedTuple):
    """A grant and its messages; there is at least one."""

    grant: Grant
    messages: Sequence[Message]


class PulledBatches(NamedTuple):
    """The messages of grants. `is_short`: leases were released unread, and other receives may acquire them.

    `unread`: queues that could not be read; their leases were released.
    `empty`: queues without any message.
    `filtered`: messages that do not match the filter of the group, and now count as settled.
    """

    batches: list[DeliveredBatch]
    grants: Sequence[Grant]
    is_short: bool
    unread: frozenset[str] = _NONE
    empty: frozenset[str] = _NONE
    filtered: Sequence[OffsetRange] = ()


async def pull_queue(log: GroupLog, leases: LeaseStore, group: Group, grant: Grant, most_bytes: int) -> PulledBatches:
    """Pull one batch of queue mode; return its grant as it is after the pull, or none if nothing was stored."""
    lease = grant.lease
    try:
        messages = await log.read(group, lease.queue, lease.start, lease.next - lease.start, most_bytes)
    except BaseException as error:
        await leases.report_pull(group, (PullReport(grant, lease.start),))
        if isinstance(error, QueueUnavailable):
            return PulledBatches([], (), is_short=False, unread=frozenset({lease.queue}))
        raise
    after = lease.start + len(messages)
    if after < lease.next:
        await leases.report_pull(group, (PullReport(grant, after),))
        grant = grant._replace(lease=lease._replace(next=after))
    if not messages:
        return PulledBatches([], (), is_short=False, empty=frozenset({lease.queue}))
    # Released messages follow the leased ones in the same queue, so no other receive can have them.
    return PulledBatches([DeliveredBatch(grant, messages)], (grant,), is_short=False)


async def pull_messages(
    log: GroupLog, leases: LeaseStore, group: Group, grants: Sequence[Grant], most: int, most_bytes: int
) -> PulledBatches:
    """Pull all ranges of message mode at once; report to the store only if short, filtered, ordered or served again.

    `most`: the maximum number of delivered messages; a widened request may find more.
    """
    try:
        reads = [_read(log, group, grant.lease, most_bytes) for grant in grants]
        # Mostly there is one range, for which a task would cost more than the read.
        ranges = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
    except BaseException:
        await leases.report_pull(group, [PullReport(grant, grant.lease.start) for grant in grants])
        raise
    unread = empty = _NONE
    if not all(ranges):
        unread = frozenset(grant.lease.queue for grant, some in zip(grants, ranges, strict=True) if some is None)
        empty = frozenset(grant.lease.queue for grant, some in zip(grants, ranges, strict=True) if not some) - unread
    placements = []
    room = most_bytes
    found: list[Sequence[Message]] = []
    for grant, messages in zip(grants, ranges, strict=True):
        fitting, room = _fitting(messages or (), room, is_first=not any(found))
        if group.tags and not group.is_ordered:
            fitting, most = _wanted(fitting, group.tags, most)
        found.append(fitting)
        placements.append(_placement(group, grant, fitting))
    filtered: list[OffsetRange] = []
    # Leases of unreadable queues do not count: a woken receive could not read them either.
    is_short = any(each.after < each.grant.lease.next for each in placements if each.grant.lease.queue not in unread)
    # A range that is served again may have gaps of filtered messages.
    if is_short or unread or any(each.kept is not None or each.grant.serve > 1 for each in placements):
        placed = await leases.report_pull(group, placements)
        if group.is_ordered and sum(map(len, placed)) > most:
            placed, is_short = await _without_surplus(leases, group, placements, placed, most), True
        filtered += [span for each, some in zip(placements, found, strict=True) for span in _filtered(each, some)]
        found = [[each for each in some if each.offset in stay] for some, stay in zip(found, placed, strict=True)]
        grants = [_shortened(grant, stay) for grant, stay in zip(grants, placed, strict=True)]
    batches = [DeliveredBatch(grant, messages) for grant, messages in zip(grants, found, strict=True) if messages]
    return PulledBatches(batches, grants, is_short, unread, empty, filtered)


async def _read(log: GroupLog, group: Group, lease: Lease, most_bytes: int) -> Sequence[Message] | None:
    """Return the messages of a range, or None if its queue cannot be read now."""
    try:
        return await log.read(group, lease.queue, lease.start, lease.next - lease.start, most_bytes)
    except QueueUnavailable:
        return None


def _fitting(messages: Sequence[Message], room: int, *, is_first: bool) -> tuple[Sequence[Message], int]:
    """Return the messages that fit, and the room left. The first always fits, or it would never be delivered."""
    sizes = list(map(len, map(body_of, messages)))
    # Mostly all of them fit.
    count, left = len(sizes), room - sum(sizes)
    while left < 0 and count > (1 if is_first else 0):
        count -= 1
        left += sizes[count]
    return messages[:count], left


def _wanted(messages: Sequence[Message], tags: Container[str | None], most: int) -> tuple[Sequence[Message], int]:
    """Return the messages up to the last of `most` matches, and how many matches are still missing."""
    matches = [index for index, message in enumerate(messages) if message.tag in tags]
    if len(matches) > most:
        return messages[: matches[most - 1] + 1 if most else 0], 0
    return messages, most - len(matches)


def _placement(group: Group, grant: Grant, messages: Sequence[Message]) -> PullReport:
    after = messages[-1].offset + 1 if messages else grant.lease.start
    if not group.tags and not group.is_ordered:
        return PullReport(grant, after)
    kept = {each.offset: each.key for each in messages if not group.tags or each.tag in group.tags}
    return PullReport(grant, after, kept)


async def _without_surplus(
    leases: LeaseStore, group: Group, placements: Sequence[PullReport], placed: Sequence[frozenset[int]], most: int
) -> list[frozenset[int]]:
    """Keep at most `most` of the messages that the store reports as in turn; release the others uncounted."""
    surplus = []
    left: list[frozenset[int]] = []
    for placement, stay in zip(placements, placed, strict=True):
        in_turn = sorted(stay)
        if len(in_turn) > most:
            surplus.append(placement._replace(after=in_turn[most], kept=None))
        left.append(frozenset(in_turn[:most]))
        most -= len(left[-1])
    await leases.report_pull(group, surplus)
    return left


def _filtered(placement: PullReport, messages: Sequence[Message]) -> list[OffsetRange]:
    """Return the filtered messages of a range. They are reported with the first serve, which settled them."""
    kept, grant = placement.kept, placement.grant
    if kept is None or grant.serve > 1:
        return []
    spans: list[OffsetRange] = []
    for message in messages:
        at = message.offset
        if at in kept:
            continue
        if spans and spans[-1].next == at:
            spans[-1] = spans[-1]._replace(next=at + 1)
        else:
            spans.append(OffsetRange(grant.lease.queue, at, at + 1))
    return spans


def _shortened(grant: Grant, stay: frozenset[int]) -> Grant:
    """Return the grant up to its last message, so that a repeated serve has the same receipts."""
    return grant._replace(lease=grant.lease._replace(next=max(stay, default=grant.lease.start - 1) + 1))
