"""Groups and topics are moved from Java to mqgate and back, without a lost or repeated message."""

import httpx
import pytest
from interop_calls import lag, publish, shop, take
from java_client import Java

from mqgate import bootstrap


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_group_of_java_continues_in_mqgate(api: httpx.AsyncClient, java: Java, mode: str, start: str) -> None:
    """A service that moves to mqgate neither starts over nor skips messages, whatever `start` is."""
    await java.create_topic("orders", 2, cluster="one")
    await java.create_group("workers", cluster="one")
    sent = await java.send("orders", *({"body": f"b{n}"} for n in range(20)))
    before = await java.consume("orders", "workers", 7)

    await shop(api, queues=2, mode=mode, start=start)
    standing = await lag(api)
    after = await take(api, 13)

    assert len(before) == 7
    assert standing["lag"] == 13
    assert sorted(message["id"] for message in [*before, *after]) == sorted(message["id"] for message in sent)
    assert await take(api, 1, wait=0) == []


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_group_of_mqgate_continues_in_java(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """Java receives no acked message again, and no message is missing."""
    await shop(api, queues=2, mode=mode)
    published = await publish(api, *({"body": f"b{n}"} for n in range(20)))
    before = await take(api, 7, wait=1)
    await gateway.mirror.run_once()

    after = await java.consume("orders", "workers", 20 - len(before))

    assert len(before) == 7
    assert sorted(message["id"] for message in [*before, *after]) == sorted(message["id"] for message in published)


@pytest.mark.usefixtures("pair")  # mqadmin asks every broker that the name server knows
async def test_registering_a_group_does_not_change_its_settings_on_the_broker(
    api: httpx.AsyncClient, java: Java
) -> None:
    """An operator may have set them for Java consumers."""
    await java.create_topic("orders", 1, cluster="one")
    await java.create_group("workers", "-r", "3", "-q", "2", cluster="one")

    await shop(api)
    config = (await java.mqadmin("getConsumerConfig", "-g", java.wire("workers"))).replace(" ", "")

    assert "retryMaxTimes=3" in config
    assert "retryQueueNums=2" in config


@pytest.mark.parametrize("queues", [2, 6, 8])
async def test_a_topic_created_by_mqadmin_is_adopted_with_its_messages(
    api: httpx.AsyncClient, java: Java, queues: int
) -> None:
    """Existing messages are delivered, whether fewer, as many or more queues are requested."""
    await java.create_topic("orders", 6, cluster="one")
    sent = await java.send("orders", *({"body": f"b{n}", "keys": [f"k{n}"]} for n in range(30)))

    await shop(api, queues=queues)
    old = await take(api, 30)
    published = await publish(api, *({"body": str(n), "key": f"k{n}"} for n in range(30)))
    new = await take(api, 30)

    assert sorted(message["id"] for message in old) == sorted(message["id"] for message in sent)
    assert sorted(message["id"] for message in new) == sorted(message["id"] for message in published)
    assert len((await lag(api))["queues"]) == max(queues, 6)
