"""Receipts: signed, opaque, and nobody else's."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.lease import Lease
from mqgate.core.receipt import ReceiptKeys, SigningKeys

OLD, NEW = b"o" * 32, b"n" * 32
BOTH = SigningKeys({1: OLD, 2: NEW}, 2)
KEYS = ReceiptKeys(BOTH)
LEASE = Lease("workers", "", "local:0", 10, 14, 5, "0011223344556677")
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,100}", fullmatch=True)
CLIENTS = st.text(max_size=128).filter(str.isprintable)
NUMBERS = st.integers(0, 1 << 62)


@given(group=NAMES, client=CLIENTS, start=NUMBERS, after=NUMBERS, epoch=NUMBERS)
def test_a_receipt_proves_the_lease_it_was_made_of(group: str, client: str, start: int, after: int, epoch: int) -> None:
    """Whatever names there are, with room to spare in what is accepted."""
    lease = Lease(group, client, "local:1023", start, after, epoch, "0011223344556677")

    receipt = KEYS.sign(lease)

    assert KEYS.verify(receipt, group) == lease
    assert receipt.isascii()
    assert "=" not in receipt


def test_a_receipt_of_the_longest_names_is_accepted() -> None:
    """128 characters of four bytes each, the longest group and broker."""
    lease = Lease("g" * 100, "\U0001f4a5" * 128, "b" * 127 + ":1023", 1 << 40, 1 << 40, 1 << 62, "f" * 16)

    assert ReceiptKeys(BOTH).verify(KEYS.sign(lease, ",".join(["18bcfe56800"] * 10)), "g" * 100) == lease


def test_a_receipt_of_the_previous_key_is_accepted_and_new_ones_use_the_current() -> None:
    """Rotation changes no outcome."""
    old, new = ReceiptKeys(SigningKeys({1: OLD}, 1)), ReceiptKeys(SigningKeys({2: NEW}, 2))

    assert KEYS.verify(old.sign(LEASE), "workers") == LEASE
    assert new.verify(KEYS.sign(LEASE), "workers") == LEASE
    assert new.verify(old.sign(LEASE), "workers") is None


def test_a_receipt_of_another_group_proves_nothing() -> None:
    """Foreign is as good as forged."""
    assert KEYS.verify(KEYS.sign(LEASE), "others") is None


def test_no_bit_can_be_changed() -> None:
    """Neither the fields nor the signature nor the key's number."""
    receipt = KEYS.sign(LEASE)
    raw = bytearray(base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4)))

    for place in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8

        assert KEYS.verify(base64.urlsafe_b64encode(changed).decode().rstrip("="), "workers") is None


@given(st.text(max_size=200) | st.binary(max_size=120).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_is_answered(text: str) -> None:
    """A receipt is whatever a client sends: never an exception."""
    assert KEYS.verify(text, "workers") is None


def message(offset: object, lease: Lease = LEASE, stamp: str = "5f") -> str:
    """The receipt of one message of a range."""
    return KEYS.sign_each(lease, "", [f"{offset}.{stamp}"])[0]


def test_a_message_of_a_range_is_proved_by_its_offset() -> None:
    """One signature serves a whole range, and each receipt stands for its message alone."""
    proved = KEYS.verify(message(LEASE.next - 1), LEASE.group)

    assert proved == LEASE._replace(start=LEASE.next - 1)


@pytest.mark.parametrize("receipt", [KEYS.sign(LEASE), message(12)])
@pytest.mark.parametrize("keys", [KEYS, ReceiptKeys(BOTH)])
def test_no_character_can_be_changed_left_out_or_added(receipt: str, keys: ReceiptKeys) -> None:
    """Whoever has it in hand, and whoever has not: what is not as it was given is forged."""
    forged = {receipt[:place] + receipt[place + 1 :] for place in range(len(receipt))}
    for place in range(len(receipt) + 1):
        for other in "0A_-.=/ ":
            forged |= {receipt[:place] + other + receipt[place + 1 :], receipt[:place] + other + receipt[place:]}

    assert {keys.verify(each, LEASE.group) for each in forged - {receipt}} == {None}
    assert keys.verify(receipt, LEASE.group) is not None


def test_a_range_proves_nothing_outside_itself_and_nothing_of_the_other_kind() -> None:
    """Whoever holds a receipt must not be able to make one for what was never granted, nor for its neighbour."""
    token, _, rest = message(LEASE.start).partition(".")
    batch = KEYS.sign(LEASE)
    fresh = ReceiptKeys(BOTH)

    forged = [message(LEASE.next), message(LEASE.start - 1), message(f"0{LEASE.start}"), message("x"), message("-1")]
    forged += [token, f"{token}.", f"{token}.{LEASE.start + 1}.{rest.partition('.')[2]}", f"{batch}.{rest}"]

    assert [KEYS.verify(each, LEASE.group) for each in forged] == [None] * len(forged)
    assert [fresh.verify(each, LEASE.group) for each in forged] == [None] * len(forged)
    assert fresh.verify(message(LEASE.start), LEASE.group) == LEASE._replace(next=LEASE.start + 1)


def test_receipts_of_the_format_before_are_accepted() -> None:
    """During a rolling upgrade leases of the release before are settled at the new one: no times, no mark then."""
    batch = "AAG5spce5j8mVyPMUzez-BaAYmF0Y2gfd29ya2Vycx8fbG9jYWw6MB8xMB8xNB81HzAwMTEyMjMzNDQ1NTY2Nzc"
    message = "AAE6DyyoC2JOwv8w3e9uxeOVcmFuZ2Ufd29ya2Vycx8fbG9jYWw6MB8xMB8xNB81HzAwMTEyMjMzNDQ1NTY2Nzc.12"

    assert KEYS.verify(batch, LEASE.group) == LEASE
    assert KEYS.verify(message, LEASE.group) == LEASE._replace(start=12, next=13)


_BATCH, _OLD = (
    KEYS.sign(LEASE),
    "AAE6DyyoC2JOwv8w3e9uxeOVcmFuZ2Ufd29ya2Vycx8fbG9jYWw6MB8xMB8xNB81HzAwMTEyMjMzNDQ1NTY2Nzc",
)
_SOME = [
    _BATCH,
    f"{_BATCH}.",
    f"{_BATCH}.12",
    message(10),
    message(13),
    message(13)[:-1],
    message(14),
    message("012"),
    message(13).partition(".")[0],
    f"{_OLD}.12",
    f"{_OLD}.13.5f",
    f"{_OLD}.14",
]
_OTHERS = [message(12, LEASE._replace(epoch=6)), message(12, LEASE._replace(group="other")), "", "."]


@given(st.lists(st.sampled_from([*_SOME, *_OTHERS]), max_size=8))
def test_many_receipts_prove_what_each_of_them_proves(receipts: list[str]) -> None:
    """Neighbours share what was found out of their token: never what the token of another proves."""
    assert KEYS.verify_each(receipts, LEASE.group) == [KEYS.verify(each, LEASE.group) for each in receipts]


@given(st.binary(min_size=1, max_size=200))
def test_the_tag_is_the_standards(secret: bytes) -> None:
    """What signs here is checked by gateways of other releases, and of other makes."""
    raw = base64.urlsafe_b64decode(ReceiptKeys(SigningKeys({1: secret}, 1)).sign(LEASE) + "==")

    assert raw[2:18] == hmac.digest(secret, raw[18:], "sha256")[:16]


@pytest.mark.parametrize("offset", ["", "00", "+0", "-0", " 0", "0_0", "\u0660", "3", "1" * 20])
def test_an_offset_is_written_in_one_way(offset: str) -> None:
    """Two receipts of one message could be acked twice; and nobody reaches beyond what was granted."""
    lease = LEASE._replace(start=0, next=3)

    assert KEYS.verify(message(0, lease), LEASE.group) == lease._replace(next=1)
    assert KEYS.verify(message(offset, lease), LEASE.group) is None


def test_keys_learned_later_count_from_then_on() -> None:
    """Rotation while a gateway runs: signing moves on, and what an outlived key signed goes with it."""
    keys = ReceiptKeys(SigningKeys({1: OLD}, 1))
    by_old = keys.sign(LEASE)

    keys.update_keys(BOTH)
    by_new = keys.sign(LEASE)
    accepted = keys.verify(by_old, LEASE.group)
    keys.update_keys(SigningKeys({2: NEW}, 2))

    assert accepted == LEASE
    assert ReceiptKeys(SigningKeys({2: NEW}, 2)).verify(by_new, LEASE.group) == LEASE
    assert keys.verify(by_new, LEASE.group) == LEASE
    assert keys.verify(by_old, LEASE.group) is None


def test_a_key_that_is_accepted_but_not_current_does_not_sign() -> None:
    """Others may not have heard of it yet."""
    keys = ReceiptKeys(SigningKeys({1: OLD, 2: NEW}, 1))

    assert ReceiptKeys(SigningKeys({1: OLD}, 1)).verify(keys.sign(LEASE), LEASE.group) == LEASE


def test_a_receipt_of_a_key_that_is_not_known_is_strange() -> None:
    """Only for those it is worth looking for a new key; forged ones of known keys are not."""
    known, receipt = ReceiptKeys(SigningKeys({1: OLD}, 1)), ReceiptKeys(BOTH).sign(LEASE)

    assert known.has_unknown_key(receipt)
    assert known.has_unknown_key(message(10))
    assert not known.has_unknown_key(known.sign(LEASE))
    assert not known.has_unknown_key(known.sign(LEASE)[:-4] + "AAAA")


@given(st.text(max_size=20))
def test_any_text_is_strange_or_not(text: str) -> None:
    """Never an exception."""
    assert KEYS.has_unknown_key(text) in {True, False}
