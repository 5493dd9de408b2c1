"""A page of messages reads like a list of them."""

import pytest

from mqgate.core.message import Message
from mqgate.core.message_page import MessagePage


def message(offset: int) -> Message:
    return Message(
        f"id{offset}", "orders", "local:0", offset, b"x" * offset, f"k{offset}", None, {"n": "1"}, 100 + offset
    )


MESSAGES = [message(offset) for offset in (3, 4, 6)]
PAGE = MessagePage.of(MESSAGES)


def test_a_page_has_the_messages_of_the_list() -> None:
    """Filters, dead letters and /mq read single messages."""
    assert list(PAGE) == MESSAGES
    assert [PAGE[0], PAGE[-1]] == [MESSAGES[0], MESSAGES[-1]]
    assert len(PAGE) == 3
    assert PAGE == MESSAGES


def test_a_part_of_a_page_is_a_page() -> None:
    """A response that would be too large has the first messages only."""
    part = PAGE[:2]

    assert list(part) == MESSAGES[:2]
    assert (part.sizes, part.offsets, part.queue) == ([3, 4], (3, 4), "local:0")


def test_an_empty_page_is_false() -> None:
    """Callers ask whether a pull found anything."""
    assert not MessagePage.of([])
    assert not PAGE[:0]


def test_a_page_is_not_copied() -> None:
    """Every layer may ask for a page."""
    assert MessagePage.of(PAGE) is PAGE


def test_a_page_has_no_hash() -> None:
    """It equals a list, which has none."""
    with pytest.raises(TypeError):
        hash(PAGE)
