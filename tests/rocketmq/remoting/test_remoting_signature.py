"""Signatures, compared with values of another program."""

from hypothesis import given
from hypothesis import strategies as st

from mqgate.rocketmq.remoting.signature import Credentials, sign

_FIELDS = {"topic": "größe", "queueId": "3", "b": "Z"}
_BODY = b"\x00\x01body"


def test_a_signature_equals_that_of_openssl() -> None:
    """Computed with: openssl dgst -sha1 -hmac 's3crét' -binary | base64, over "userZ3größe" and the body."""
    signed = sign(_FIELDS, _BODY, Credentials(access_key="user", secret_key="s3crét"))

    assert signed == {**_FIELDS, "AccessKey": "user", "Signature": "kmrZwO0/Q+nc2O2B9Cr/wusJLnQ="}


def test_a_security_token_is_signed_too() -> None:
    """The same over "usertokenZ3größe" and the body: it sorts between the access key and the small letters."""
    credentials = Credentials(access_key="user", secret_key="s3crét", security_token="token")

    signed = sign(_FIELDS, _BODY, credentials)

    assert signed["SecurityToken"] == "token"
    assert signed["Signature"] == "mlTnr+d3dn4vw8RJGp4v+wDo2Sc="


@given(st.dictionaries(st.text("abcXYZ_", min_size=1, max_size=5), st.text("ab", max_size=5)), st.binary(max_size=20))
def test_a_signature_does_not_depend_on_the_order_of_fields(fields: dict[str, str], body: bytes) -> None:
    """The server may decode the fields in another order."""
    credentials = Credentials(access_key="user", secret_key="secret")
    turned = dict(reversed(fields.items()))

    assert sign(fields, body, credentials)["Signature"] == sign(turned, body, credentials)["Signature"]


def test_secrets_are_not_in_the_repr() -> None:
    """Credentials may be logged by accident."""
    shown = repr(Credentials(access_key="user", secret_key="s3cret", security_token="t0ken"))

    assert "user" in shown
    assert "s3cret" not in shown
    assert "t0ken" not in shown
