"""Receipts are signed, opaque, and valid for one group only."""

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
def test_verify_returns_the_signed_lease(group: str, client: str, start: int, after: int, epoch: int) -> None:
    """A lease must survive the round trip with all valid names and numbers."""
    lease = Lease(group, client, "local:1023", start, after, epoch, "0011223344556677")

    receipt = KEYS.sign(lease)

    assert KEYS.verify(receipt, group) == lease
    assert receipt.isascii()
    assert "=" not in receipt


def test_a_receipt_of_the_longest_names_is_accepted() -> None:
    """A receipt with names of the maximum length must not exceed the length limit."""
    lease = Lease("g" * 100, "\U0001f4a5" * 128, "b" * 127 + ":1023", 1 << 40, 1 << 40, 1 << 62, "f" * 16)

    assert ReceiptKeys(BOTH).verify(KEYS.sign(lease, ",".join(["18bcfe56800"] * 10)), "g" * 100) == lease


def test_previous_keys_are_accepted_and_the_current_key_signs() -> None:
    """Key rotation must not invalidate leases."""
    old, new = ReceiptKeys(SigningKeys({1: OLD}, 1)), ReceiptKeys(SigningKeys({2: NEW}, 2))

    assert KEYS.verify(old.sign(LEASE), "workers") == LEASE
    assert new.verify(KEYS.sign(LEASE), "workers") == LEASE
    assert new.verify(old.sign(LEASE), "workers") is None


def test_a_receipt_of_another_group_is_rejected() -> None:
    """A consumer must not settle the leases of another group."""
    assert KEYS.verify(KEYS.sign(LEASE), "others") is None


def test_a_receipt_with_any_flipped_bit_is_rejected() -> None:
    """The fields, the signature and the key number must all be protected."""
    receipt = KEYS.sign(LEASE)
    raw = bytearray(base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4)))

    for place in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8

        assert KEYS.verify(base64.urlsafe_b64encode(changed).decode().rstrip("="), "workers") is None


@given(st.text(max_size=200) | st.binary(max_size=120).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_verifying_any_text_raises_nothing(text: str) -> None:
    """A client can send any text as a receipt."""
    assert KEYS.verify(text, "workers") is None


def message(offset: object, lease: Lease = LEASE, stamp: str = "5f") -> str:
    """Return the receipt of one message of a range."""
    return KEYS.sign_each(lease, "", [f"{offset}.{stamp}"])[0]


def test_the_receipt_of_a_message_covers_that_message_only() -> None:
    """One signature serves a whole range, but each receipt must settle one message only."""
    proved = KEYS.verify(message(LEASE.next - 1), LEASE.group)

    assert proved == LEASE._replace(start=LEASE.next - 1)


@pytest.mark.parametrize("receipt", [KEYS.sign(LEASE), message(12)])
@pytest.mark.parametrize("keys", [KEYS, ReceiptKeys(BOTH)])
def test_a_receipt_with_any_edited_character_is_rejected(receipt: str, keys: ReceiptKeys) -> None:
    """Edited receipts must be rejected with and without the token in the cache."""
    forged = {receipt[:place] + receipt[place + 1 :] for place in range(len(receipt))}
    for place in range(len(receipt) + 1):
        for other in "0A_-.=/ ":
            forged |= {receipt[:place] + other + receipt[place + 1 :], receipt[:place] + other + receipt[place:]}

    assert {keys.verify(other, LEASE.group) for other in forged - {receipt}} == {None}
    assert keys.verify(receipt, LEASE.group) is not None


def test_a_receipt_cannot_be_turned_into_another() -> None:
    """A client must not create a receipt for a message that it did not receive, or of another kind."""
    token, _, rest = message(LEASE.start).partition(".")
    batch = KEYS.sign(LEASE)
    fresh = ReceiptKeys(BOTH)

    forged = [message(LEASE.next), message(LEASE.start - 1), message(f"0{LEASE.start}"), message("x"), message("-1")]
    forged += [token, f"{token}.", f"{token}.{LEASE.start + 1}.{rest.partition('.')[2]}", f"{batch}.{rest}"]

    assert [KEYS.verify(receipt, LEASE.group) for receipt in forged] == [None] * len(forged)
    assert [fresh.verify(receipt, LEASE.group) for receipt in forged] == [None] * len(forged)
    assert fresh.verify(message(LEASE.start), LEASE.group) == LEASE._replace(next=LEASE.start + 1)


def test_receipts_of_the_previous_release_are_accepted() -> None:
    """During a rolling upgrade, leases of the previous release (no times, no marks) are settled at new gateways."""
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
def test_verify_each_agrees_with_verify(receipts: list[str]) -> None:
    """The shared check of a token must never apply to a receipt with another token."""
    assert KEYS.verify_each(receipts, LEASE.group) == [KEYS.verify(receipt, LEASE.group) for receipt in receipts]


@given(st.binary(min_size=1, max_size=200))
def test_the_signature_is_a_standard_hmac(secret: bytes) -> None:
    """Gateways of other releases must be able to verify the receipts."""
    raw = base64.urlsafe_b64decode(ReceiptKeys(SigningKeys({1: secret}, 1)).sign(LEASE) + "==")

    assert raw[2:18] == hmac.digest(secret, raw[18:], "sha256")[:16]


@pytest.mark.parametrize("offset", ["", "00", "+0", "-0", " 0", "0_0", "\u0660", "3", "1" * 20])
def test_an_offset_in_another_notation_is_rejected(offset: str) -> None:
    """Two receipts of one message could otherwise be acked twice."""
    lease = LEASE._replace(start=0, next=3)

    assert KEYS.verify(message(0, lease), LEASE.group) == lease._replace(next=1)
    assert KEYS.verify(message(offset, lease), LEASE.group) is None


def test_updated_keys_apply_at_once() -> None:
    """Keys rotate while a gateway runs: the new key signs, and receipts of a deleted key are rejected."""
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
    """Other gateways may not have loaded a new key yet."""
    keys = ReceiptKeys(SigningKeys({1: OLD, 2: NEW}, 1))

    assert ReceiptKeys(SigningKeys({1: OLD}, 1)).verify(keys.sign(LEASE), LEASE.group) == LEASE


def test_a_receipt_of_an_unknown_key_is_detected() -> None:
    """The gateway loads new keys for these receipts only, not for forged receipts of known keys."""
    known, receipt = ReceiptKeys(SigningKeys({1: OLD}, 1)), ReceiptKeys(BOTH).sign(LEASE)

    assert known.has_unknown_key(receipt)
    assert known.has_unknown_key(message(10))
    assert not known.has_unknown_key(known.sign(LEASE))
    assert not known.has_unknown_key(known.sign(LEASE)[:-4] + "AAAA")


@given(st.text(max_size=20))
def test_checking_any_text_for_its_key_raises_nothing(text: str) -> None:
    """A client can send any text as a receipt."""
    assert KEYS.has_unknown_key(text) in {True, False}


def whole_range(keys: ReceiptKeys = KEYS, lease: Lease = LEASE, offsets: range = range(10, 14)) -> list[str]:
    return keys.sign_each(lease, "1", [f"{offset}.5f" for offset in offsets])


def test_all_receipts_of_a_range_verify_as_one_lease() -> None:
    """It is the lease of the messages that were signed, which may be fewer than those of the grant."""
    shorter = LEASE._replace(epoch=6)

    assert KEYS.verify_range(whole_range(), "workers") == LEASE
    assert KEYS.verify_range(whole_range(lease=shorter, offsets=range(11, 13)), "workers") == shorter._replace(
        start=11, next=13
    )


@pytest.mark.parametrize("change", ["part", "order", "twice", "edited", "more", "joined"])
def test_other_receipts_do_not_verify_as_a_range(change: str) -> None:
    """Each of them is verified on its own then."""
    receipts = whole_range()
    changed = {
        "part": receipts[:-1],
        "order": receipts[::-1],
        "twice": [receipts[0], *receipts[:-1]],
        "edited": [*receipts[:-1], receipts[-1][:-1] + ("0" if receipts[-1][-1] != "0" else "1")],
        "more": [*receipts, receipts[-1]],
        "joined": ["\n".join(receipts[:2]), *receipts[2:], ""],
    }[change]

    assert KEYS.verify_range(changed, "workers") is None


def test_a_range_is_valid_for_its_group_and_while_its_key_is_accepted() -> None:
    """The same holds for a single receipt."""
    keys = ReceiptKeys(BOTH)
    receipts = whole_range(keys)
    assert keys.verify_range(receipts, "others") is None

    keys.update_keys(SigningKeys({3: OLD}, 3))

    assert keys.verify_range(receipts, "workers") is None


def test_receipts_of_a_range_with_gaps_do_not_verify_as_one_lease() -> None:
    """A filter may have removed messages, and an ack must not settle those."""
    receipts = KEYS.sign_each(LEASE._replace(epoch=7), "1", ["10.5f", "13.5f"])

    assert KEYS.verify_range(receipts, "workers") is None


@given(st.lists(st.text(), min_size=1))
def test_verifying_any_texts_as_a_range_raises_nothing(receipts: list[str]) -> None:
    """Receipts come from clients."""
    assert KEYS.verify_range(receipts, "workers") is None
