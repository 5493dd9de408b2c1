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
from mqgate.core.message_page import MessagePage
from mqgate.ports.lease_store import LeaseStore

_NONE: frozenset[str] = frozenset()
_EMPTY = MessagePage.of(())


class DeliveredBatch(NamedTuple):
    """A grant and its messages; there is at least one."""

    grant: Grant
    messages: MessagePage


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


async def pull_queue(log: GroupLog, leases: LeaseStore, group: Group, grant: Grant, max_bytes: int) -> PulledBatches:
    """Pull one batch of queue mode; return its grant as it is after the pull, or none if nothing was stored."""
    lease = grant.lease
    try:
        found = await log.read(group, lease.queue, lease.start, lease.next - lease.start, max_bytes)
    except BaseException as error:
        await leases.report_pull(group, (PullReport(grant, lease.start),))
        if isinstance(error, QueueUnavailable):
            return PulledBatches([], (), is_short=False, unread=frozenset({lease.queue}))
        raise
    messages = MessagePage.of(found)
    after = lease.start + len(messages)
    if after < lease.next:
        await leases.report_pull(group, (PullReport(grant, after),))
        grant = grant._replace(lease=lease._replace(next=after))
    if not messages:
        return PulledBatches([], (), is_short=False, empty=frozenset({lease.queue}))
    # Released messages follow the leased ones in the same queue, so no other receive can have them.
    return PulledBatches([DeliveredBatch(grant, messages)], (grant,), is_short=False)


async def pull_messages(
    log: GroupLog, leases: LeaseStore, group: Group, grants: Sequence[Grant], max_messages: int, max_bytes: int
) -> PulledBatches:
    """Pull all ranges of message mode at once; report to the store only if short, filtered, ordered or served again.

    `max_messages`: the maximum number of delivered messages; a widened request may find more.
    """
    try:
        reads = [_read(log, group, grant.lease, max_bytes) for grant in grants]
        # Mostly there is one range, for which a task would cost more than the read.
        ranges = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
    except BaseException:
        await leases.report_pull(group, [PullReport(grant, grant.lease.start) for grant in grants])
        raise
    unread = empty = _NONE
    if not all(ranges):
        unread = frozenset(
            grant.lease.queue for grant, messages in zip(grants, ranges, strict=True) if messages is None
        )
        empty = (
            frozenset(grant.lease.queue for grant, messages in zip(grants, ranges, strict=True) if not messages)
            - unread
        )
    reports = []
    room = max_bytes
    found: list[MessagePage] = []
    for grant, messages in zip(grants, ranges, strict=True):
        fitting, room = _fitting(messages or _EMPTY, room, is_first=not any(found))
        if group.tags and not group.is_ordered:
            fitting, max_messages = _wanted(fitting, group.tags, max_messages)
        found.append(fitting)
        reports.append(_pull_report(group, grant, fitting))
    filtered: list[OffsetRange] = []
    # Leases of unreadable queues do not count: a woken receive could not read them either.
    is_short = any(
        report.after < report.grant.lease.next for report in reports if report.grant.lease.queue not in unread
    )
    # A range that is served again may have gaps of filtered messages.
    if is_short or unread or any(report.kept is not None or report.grant.serve > 1 for report in reports):
        leased = await leases.report_pull(group, reports)
        if group.is_ordered and sum(map(len, leased)) > max_messages:
            leased, is_short = await _without_surplus(leases, group, reports, leased, max_messages), True
        filtered += [
            span for report, messages in zip(reports, found, strict=True) for span in _filtered(report, messages)
        ]
        found = [
            MessagePage.of([message for message in messages if message.offset in stay])
            for messages, stay in zip(found, leased, strict=True)
        ]
        grants = [_shortened(grant, stay) for grant, stay in zip(grants, leased, strict=True)]
    batches = [DeliveredBatch(grant, messages) for grant, messages in zip(grants, found, strict=True) if messages]
    return PulledBatches(batches, grants, is_short, unread, empty, filtered)


async def _read(log: GroupLog, group: Group, lease: Lease, max_bytes: int) -> MessagePage | None:
    """Return the messages of a range, or None if its queue cannot be read now."""
    try:
        return MessagePage.of(await log.read(group, lease.queue, lease.start, lease.next - lease.start, max_bytes))
    except QueueUnavailable:
        return None


def _fitting(messages: MessagePage, room: int, *, is_first: bool) -> tuple[MessagePage, int]:
    """Return the messages that fit, and the room left. The first always fits, or it would never be delivered."""
    sizes = messages.sizes
    count, left = len(sizes), room - sum(sizes)
    if left >= 0:
        return messages, left
    while left < 0 and count > (1 if is_first else 0):
        count -= 1
        left += sizes[count]
    return messages[:count], left


def _wanted(messages: MessagePage, tags: Container[str | None], max_messages: int) -> tuple[MessagePage, int]:
    """Return the messages up to the last of `max_messages` matches, and how many matches are still missing."""
    matches = [index for index, tag in enumerate(messages.tags) if tag in tags]
    if len(matches) > max_messages:
        return messages[: matches[max_messages - 1] + 1 if max_messages else 0], 0
    return messages, max_messages - len(matches)


def _pull_report(group: Group, grant: Grant, messages: MessagePage) -> PullReport:
    after = messages.offsets[-1] + 1 if messages else grant.lease.start
    if not group.tags and not group.is_ordered:
        return PullReport(grant, after)
    kept = {message.offset: message.key for message in messages if not group.tags or message.tag in group.tags}
    return PullReport(grant, after, kept)


async def _without_surplus(
    leases: LeaseStore, group: Group, reports: Sequence[PullReport], leased: Sequence[frozenset[int]], max_messages: int
) -> list[frozenset[int]]:
    """Keep at most `max_messages` of the messages that are in turn; release the others uncounted."""
    surplus = []
    left: list[frozenset[int]] = []
    for report, stay in zip(reports, leased, strict=True):
        in_turn = sorted(stay)
        if len(in_turn) > max_messages:
            surplus.append(report._replace(after=in_turn[max_messages], kept=None))
        left.append(frozenset(in_turn[:max_messages]))
        max_messages -= len(left[-1])
    await leases.report_pull(group, surplus)
    return left


def _filtered(report: PullReport, messages: MessagePage) -> list[OffsetRange]:
    """Return the filtered messages of a range. They are reported with the first serve, which settled them."""
    kept, grant = report.kept, report.grant
    if kept is None or grant.serve > 1:
        return []
    spans: list[OffsetRange] = []
    for at in messages.offsets:
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
