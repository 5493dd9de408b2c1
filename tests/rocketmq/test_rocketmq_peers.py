"""A server is connected on demand, and not retried for a while after a failure."""

import asyncio
import socket

import pytest
from scripted_server import ManualClock, ScriptedServer, loop_until, response_to

from mqgate.rocketmq.errors import NoResponse, NotSent
from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.transport import KeepAlive, Probe

PROBE = Probe(30, {"topic": "probe"})
FOREVER = 60.0


async def test_calls_share_one_connection(server: ScriptedServer, peers: Peers) -> None:
    """This includes calls that arrive while the connection is being made."""
    server.reply = response_to
    peer = peers.at(server.address, PROBE)

    await asyncio.gather(*(peers.call(peer, 11, {}) for _ in range(20)))
    await peers.call(peers.at(server.address, PROBE), 11, {})

    assert len(server.links) == 1
    assert not peer.is_down


async def test_an_unreachable_server_is_retried_with_growing_pauses(
    server: ScriptedServer, peers: Peers, manual_clock: ManualClock
) -> None:
    """Calls fail at once, and the server is not flooded while it starts."""
    peer = peers.at(server.address, PROBE)
    await server.stop()
    pauses = []

    for _ in range(7):
        with pytest.raises(NotSent, match="cannot be reached"):
            await peers.call(peer, 11, {})
        pauses.append(peer._retry_at - manual_clock.now)
        manual_clock.now = peer._retry_at

    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert peer.is_down


async def test_a_retry_is_made_only_when_it_is_due(
    server: ScriptedServer, peers: Peers, manual_clock: ManualClock
) -> None:
    """The first call after the pause reaches a server that is back."""
    peer = peers.at(server.address, PROBE)
    await server.stop()
    with pytest.raises(NotSent):
        await peers.call(peer, 11, {})
    await server.start()
    server.reply = response_to

    with pytest.raises(NotSent):
        await peers.call(peer, 11, {})
    assert not server.links
    manual_clock.now += 0.05

    assert (await peers.call(peer, 11, {})).code == 0
    assert not peer.is_down


async def test_a_lost_connection_is_made_again(server: ScriptedServer, peers: Peers) -> None:
    """A restarted server is reached without a pause."""
    server.reply = response_to
    peer = peers.at(server.address, PROBE)
    await peers.call(peer, 11, {})

    server.links[0].abort()
    await loop_until(lambda: peer._connection is not None and not peer._connection.is_open)

    assert (await peers.call(peer, 11, {})).code == 0
    assert len(server.links) == 2


async def test_a_silent_server_gets_a_new_connection(server: ScriptedServer) -> None:
    """The first call fails at its deadline. The next ones use a new connection."""
    peers = Peers(None, None, 0.5, keep_alive=KeepAlive(FOREVER, patience=0.1))
    peer = peers.at(server.address, PROBE)
    with pytest.raises(NoResponse):
        await peers.call(peer, 11, {})

    server.reply = response_to
    assert (await peers.call(peer, 11, {}, deadline=5.0)).code == 0

    assert len(server.links) == 2
    await peers.close()


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:-1", "[::1:5", "a\x00b:1", "\ud800:1"]
)
async def test_an_invalid_address_cannot_be_reached(peers: Peers, address: str) -> None:
    """Addresses come from name servers, which do not check them."""
    with pytest.raises(NotSent):
        await peers.call(peers.at(address, PROBE), 11, {})


async def test_connecting_counts_against_the_deadline(peers: Peers) -> None:
    """A listener with a full queue accepts no connection. A call must not wait longer than its deadline."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        peer = peers.at("127.0.0.1:{1}".format(*full.getsockname()), PROBE)

        async with asyncio.timeout(2.5):
            with pytest.raises(NotSent, match="in time"):
                await peers.call(peer, 11, {}, deadline=0.1)
        await peers.close()


async def test_a_cancelled_call_does_not_stop_connecting_for_others(server: ScriptedServer, peers: Peers) -> None:
    """Concurrent calls share one attempt."""
    server.reply = response_to
    peer = peers.at(server.address, PROBE)
    hasty = asyncio.create_task(peers.call(peer, 11, {}))
    patient = asyncio.create_task(peers.call(peer, 11, {}))
    await asyncio.sleep(0)

    hasty.cancel()

    assert (await patient).code == 0
    assert hasty.cancelled()
    assert len(server.links) == 1


async def test_each_call_gets_its_own_exception(server: ScriptedServer, peers: Peers) -> None:
    """Raising adds a traceback to an exception, so it must not be shared."""
    peer = peers.at(server.address, PROBE)
    await server.stop()

    errors = await asyncio.gather(*(peers.call(peer, 11, {}) for _ in range(10)), return_exceptions=True)

    assert {type(error) for error in errors} == {NotSent}
    assert len({id(error) for error in errors}) == 10


async def test_a_server_that_is_shutting_down_has_not_executed_the_request(
    server: ScriptedServer, peers: Peers
) -> None:
    """After GO_AWAY the request may be sent elsewhere, or on a new connection."""
    server.reply = lambda request: response_to(request, ResponseCode.GO_AWAY)
    peer = peers.at(server.address, PROBE)
    with pytest.raises(NotSent, match="going away"):
        await peers.call(peer, 310, {}, b"x")

    server.reply = response_to
    assert (await peers.call(peer, 310, {}, b"x")).code == 0

    assert len(server.links) == 2
    await asyncio.wait_for(server.links[0].lost.wait(), 10)


async def test_a_server_that_is_shutting_down_responds_to_pending_requests(
    server: ScriptedServer, peers: Peers
) -> None:
    """Otherwise sends would have an unknown outcome. A second GO_AWAY must not close the new connection."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 310, {"n": str(n)}, b"x", FOREVER)) for n in range(3)]
    [(link, first), (_, second), (_, third)] = await server.received(3)

    link.send(response_to(first, ResponseCode.GO_AWAY))
    await asyncio.wait({calls[int(first.fields["n"])]})
    server.reply = response_to
    assert (await peers.call(peer, 310, {}, b"new")).code == 0
    assert server.requests[-1][0] is not link
    link.send(response_to(second, ResponseCode.GO_AWAY))
    await asyncio.wait({calls[int(second.fields["n"])]})
    link.send(response_to(third, body=b"stored"))

    first_refused, second_refused, stored = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first_refused, NotSent)
    assert isinstance(second_refused, NotSent)
    assert not isinstance(stored, BaseException)
    assert stored.body == b"stored"
    await asyncio.wait_for(link.lost.wait(), 10)
    assert (await peers.call(peer, 310, {}, b"new")).code == 0
    assert len(server.links) == 2


async def test_close_ends_all_connections(server: ScriptedServer, other: ScriptedServer, peers: Peers) -> None:
    """Pending requests fail with NoResponse and later ones with NotSent. No caller is left waiting."""
    first, second = peers.at(server.address, PROBE), peers.at(other.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 11, {}, b"", FOREVER)) for peer in (first, first, second)]
    await server.received(2)
    await other.received()

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {NoResponse}
    for peer in (first, peers.at("127.0.0.1:1", PROBE)):
        with pytest.raises(NotSent, match="closed"):
            await peers.call(peer, 11, {})
    await asyncio.wait_for(server.links[0].lost.wait(), 10)
    await peers.close()


async def test_close_while_connecting_does_not_cancel_callers(server: ScriptedServer, peers: Peers) -> None:
    """A caller gets NotSent. A cancellation would look like its own."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 11, {})) for _ in range(3)]
    await asyncio.sleep(0)
    assert peer._connecting is not None

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {NotSent}
    assert peer._connecting is None
    assert not peer._open


async def test_close_also_ends_a_retired_connection(server: ScriptedServer, peers: Peers) -> None:
    """A retired connection may have pending requests."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 310, {}, b"x", FOREVER)) for _ in range(2)]
    [(link, first), _] = await server.received(2)
    link.send(response_to(first, ResponseCode.GO_AWAY))
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [NotSent, NoResponse]
    await asyncio.wait_for(link.lost.wait(), 10)
