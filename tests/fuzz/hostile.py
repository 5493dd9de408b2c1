"""Values that break parsers: for members, for text, and for whole bodies."""

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["corrupted", "cursor", "damaged", "duration", "hostile", "instant", "large", "large_form", "number", "text"]

_INSTANTS = (
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999999Z", "10000-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-12-31T23:59:60Z"),
    *("2026-01-01", "2026-01-01T00:00:00", "-0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "now", "earliest"),
    *("1900-01-01T00:00:00Z", "2262-04-12T00:00:00Z", "0", "-1", "253402300800000", "-62135596800001", "1e18"),
    *(
        "2026-01-01T00:00:00.0000000000000000000001Z",
        "20260101T000000Z",
        "2026-W01-1T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
    ),
)
_DURATIONS = (
    *("0s", "-1s", "1ms", "0.5s", "1e309s", "9" * 40 + "d", "99999999999d", "NaN", "inf", "-inf", "1 s", "1S", "PT1S"),
    *("106751991d", "106751992d", "999999999d", "1000000000d", "0.0000001ms", "1d1h", "+1s", "٣s", "s", "ms"),
)
_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 32, 100, 999, 1_000, 1_001, 65_536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**53 + 1),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**127, 10**30, 0.0, -0.0, 0.5, 1.5, 1e-9, 5e-324),
    *(
        1e15,
        1e16,
        1e22,
        1e100,
        1.7e308,
        -1.7e308,
        float("nan"),
        float("inf"),
        float("-inf"),
        1e18,
        9_007_199_254_740_993,
    ),
)
_TEXTS = (
    *("", " ", "x", "-", "_", "a b", "a/b", "../../etc", "%2e%2e", "mqgate_events", "mqgate_x", "x" * 100, "x" * 101),
    *(
        "\x00",
        "a\x00b",
        "\ud800",
        "a\udfffb",
        "\ufeff",
        "\u2028",
        "\x7f",
        "\x1b[0m",
        "\r\nx: y",
        "日本語",
        "é",
        "e\u0301",
    ),
    *("🙂" * 10, "'; DROP TABLE topics; --", '"', "\\", "{}", "[]", "null", "true", "NaN", "1", "local:0", "local:-1"),
    *("local:99999999999999999999", ":", "local:", "a:b:c", "*", "#", "?", "%", "%RETRY%x", "$", "\t", "İ", "ß" * 50),
)
_UNITS = (
    *(
        b"0",
        b"{}",
        b"[]",
        b'""',
        b"null",
        b"1e5",
        b'"x"',
        b"[[]]",
        b'{"a":0}',
        b"-0.0",
        b'{"body":"x"}',
        b'"\\ud83d\\ude42"',
    ),
    *(b"true", b'{"body":0}', b'{"a":0,"a":1}', b'{"bodyBase64":"AA=="}'),
)


def text(rng: random.Random) -> str:
    """Return a text: one that is known to break things, a long one, or a random one."""
    kind = rng.random()
    if kind < 0.7:
        return rng.choice(_TEXTS)
    if kind < 0.8:
        return rng.choice(_TEXTS) * rng.choice((2, 50, 300, 5_000))
    return "".join(
        chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)))) for _ in range(8)
    )


def number(rng: random.Random) -> Any:
    return rng.choice(_NUMBERS) if rng.random() < 0.8 else rng.randrange(-(10**6), 10**6)


def instant(rng: random.Random) -> Any:
    return rng.choice(_INSTANTS) if rng.random() < 0.7 else number(rng)


def duration(rng: random.Random) -> Any:
    return rng.choice(_DURATIONS) if rng.random() < 0.6 else number(rng)


def cursor(rng: random.Random) -> str:
    """Return what looks like the cursor of a page: numbers, joined as stores join them."""
    parts = [
        rng.choice(("0", "1", "9" * 13, "9" * 18, "9" * 19, "9" * 30, "-1", "", "local:0"))
        for _ in range(rng.randrange(1, 4))
    ]
    return rng.choice((".", " ", ",", ":", "/")).join(parts)


def hostile(rng: random.Random, depth: int = 0) -> Any:
    """Return a JSON value of any type."""
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 2:
        return number(rng)
    if kind < 4:
        return text(rng)
    if kind < 7:
        return (None, True, False, instant(rng), duration(rng))[rng.randrange(5)]
    if kind < 8:
        return {text(rng): hostile(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [hostile(rng, depth + 1) for _ in range(rng.randrange(4))]


def large(rng: random.Random, size: int) -> bytes:
    """Return a JSON value of about this many bytes; not always a whole one."""
    unit = rng.choice(_UNITS)
    shapes: tuple[Callable[[], bytes], ...] = (
        lambda: b"[" + (unit + b",") * (size // (len(unit) + 1)) + unit + b"]",
        lambda: b"{" + b",".join(b'"%x":0' % i for i in range(size // 9)) + b"}",
        lambda: b'{"body":0' + b',"body":0' * (size // 9) + b"}",
        lambda: b"[" * (size // 2) + b"]" * (size // 2),
        lambda: b'{"a":' * (size // 6) + b"0" + b"}" * (size // 6),
        lambda: b"[" * size,
        lambda: b"9" * size,
        lambda: b"0." + b"9" * size,
        lambda: b"1e" + b"9" * size,
        lambda: b'"' + rng.choice((b"a", b"\\u0000", b"\\ud800", b'\\"', "é".encode(), b"\\\\")) * (size // 6) + b'"',
        lambda: b" " * size + b"{}",
        lambda: b"[" + b" \n" * (size // 2) + b"]",
        lambda: b'{"' + b"k" * size + b'":0}',
        lambda: b"," * size,
        lambda: rng.choice((b"\xff", b"\x00", b"\xed\xa0\x80", b"\xc0\xaf")) * (size // 3),
    )
    return rng.choice(shapes)()


def large_form(rng: random.Random, size: int) -> tuple[bytes, bytes]:
    """Return a form of about this many bytes, and its content type."""
    if rng.random() < 0.5:
        unit = rng.choice(
            (b"a", b"%41", b"%ff", b"%", b"+", b"&", b"=", b"a=1&", b"message=1&", b"%u0041", b"%00", b";")
        )
        return b"message=" + unit * (size // len(unit)), b"application/x-www-form-urlencoded"
    part = b'--x\r\ncontent-disposition: form-data; name="message"\r\n\r\n'
    unit = rng.choice((b"a", b"\r\n", b"-", b"\r\n--", b"\r\n--x", part, b"\r\n" + part, b"\xff", b"a: b\r\n"))
    return part + unit * (size // len(unit)) + rng.choice((b"\r\n--x--\r\n", b"")), b"multipart/form-data; boundary=x"


def damaged(rng: random.Random, body: bytes) -> bytes:
    """Return a JSON text after a fault of a client or of the way."""
    at = rng.randrange(len(body) + 1)
    faults: tuple[Callable[[], bytes], ...] = (
        lambda: body[:at],
        lambda: (
            body[:at] + rng.choice((b"\xff", b"\x00", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80")) + body[at:]
        ),
        lambda: b"\xef\xbb\xbf" + body,
        lambda: body + rng.choice((b"}", b"]", b",", b"x", b"\x00", body)),
        lambda: body.replace(b'"', b"'"),
        lambda: body.replace(b":", b":" + b" " * 1_000),
        lambda: body.replace(b"{", b'{"body":1,"body":2,', 1),
        lambda: body.replace(b"{", b'{"__proto__":{},"":0,"\\u0000":0,', 1),
        lambda: body.replace(b",", b",,", 1),
        lambda: body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :],
        lambda: body.decode("utf-8", "replace").encode("utf-16"),
        lambda: b"[" + body + b"]",
        lambda: b"",
    )
    return rng.choice(faults)()


def corrupted(rng: random.Random, value: str) -> str:
    """Return a receipt, a cursor or an id with a small change; sometimes unchanged."""
    if not value or rng.random() < 0.4:
        return value
    at = rng.randrange(len(value))
    return rng.choice(
        (
            value[:at],
            value[:at] + rng.choice("Aa0_-=.é\x00") + value[at + 1 :],
            value + rng.choice(("=", "A", "\x00", value)),
            value[at:] + value[:at],
            value.swapcase(),
            value[:at] + value[at + 1 :],
        )
    )
