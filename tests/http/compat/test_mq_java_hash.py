"""The hash by which `orderId` selects a queue."""

from mqgate.http.compat.mq.java_hash import java_hash


def test_the_hash_of_an_order_id_is_that_of_java() -> None:
    """Producers of the Java client and of /mq must select the same queue for one orderId, in every release."""
    texts = ["", "a", "hello", "polygenelubricants", "💥"]

    hashes = [java_hash(text) for text in texts]

    assert hashes == [0, 97, 99_162_322, -2_147_483_648, 1_772_552]
