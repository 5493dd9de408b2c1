"""Parameters of a form: decoded in parts, so that a large one does not block other requests."""

import asyncio
import time
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.errors import InvalidValue
from mqgate.http.compat.mq import parameters

_PIECES = st.sampled_from([b"%41", b"%e2%82%ac", b"%", b"%4", b"a", b"+", b"=", b"&", b"\xc3\xa4", b"\xc3", b"%zz"])


@given(st.lists(_PIECES, max_size=40).map(b"".join))
def test_a_form_is_decoded_like_the_standard_library_does(raw: bytes) -> None:
    """The result must not depend on where the parts are cut; here they have 7 bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "_DECODED_BYTES_PER_STEP", 7)
        try:
            expected = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            with pytest.raises(InvalidValue):
                asyncio.run(parameters._pairs(raw, "the form"))
            return

        assert asyncio.run(parameters._pairs(raw, "the form")) == expected


async def test_a_large_form_lets_other_requests_run() -> None:
    """A form of 12 MiB took four seconds of CPU at once."""
    pauses = []
    decoding = asyncio.ensure_future(parameters._pairs(b"message=" + b"%41" * 1_000_000, "the form"))
    while not decoding.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        pauses.append(time.thread_time() - began)

    assert decoding.result() == [("message", "A" * 1_000_000)]
    assert len(pauses) > 40
    assert max(pauses) < sum(pauses) / 4
