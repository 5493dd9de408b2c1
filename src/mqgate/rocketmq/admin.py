"""Administration of topics, consumer groups and the key-value configuration; status and settings of brokers."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.errors import decoding_response
from mqgate.rocketmq.remoting import loose_json
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode
from mqgate.rocketmq.routes import Routes

__all__ = ["LAYOUTS", "Admin", "TopicConfig"]

_READ, _WRITE = 4, 2
_READ_AND_WRITE = _READ | _WRITE
# RocketMQ's namespace for the queues of ordered topics, including those of brokers that are down.
LAYOUTS = "ORDER_TOPIC_CONFIG"


class TopicConfig(NamedTuple):
    read_queues: int
    write_queues: int
    perm: int

    @property
    def queues(self) -> int:
        """Return how many queues can be read or written."""
        return max(self.read_queues, self.write_queues)

    @property
    def can_read(self) -> bool:
        return bool(self.perm & _READ)


class Admin:
    def __init__(self, brokers: Brokers, routes: Routes) -> None:
        self._brokers = brokers
        self._routes = routes

    async def topics(self) -> list[str]:
        """Return the names of all topics, including RocketMQ's own."""
        response = await self._routes.call(RequestCode.GET_ALL_TOPICS, {})
        with decoding_response():
            return sorted(str(name) for name in loose_json.parse(response.body).get("topicList") or ())

    async def topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return the settings of a topic on one broker, or None if the broker does not have the topic."""
        allowed = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NOT_SUPPORTED)
        response = await self._brokers.call(broker, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, allowed=allowed)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code == ResponseCode.NOT_SUPPORTED:
            return await self._topic_from_route(broker, topic)
        with decoding_response():
            found = loose_json.parse(response.body)
            return TopicConfig(int(found["readQueueNums"]), int(found["writeQueueNums"]), int(found["perm"]))

    async def _topic_from_route(self, broker: str, topic: str) -> TopicConfig | None:
        """Return the settings of a topic from its route: RocketMQ 4 has no request for them."""
        route = await self._routes.find(topic, is_fresh=True)
        found = next((queue_set for queue_set in route.queues if queue_set.broker == broker), None) if route else None
        if found is None:
            return None
        perm = (_READ if found.read else 0) | (_WRITE if found.write else 0)
        return TopicConfig(found.read, found.write, perm)

    async def put_topic(self, broker: str, topic: str, queues: int, perm: int = _READ_AND_WRITE) -> None:
        """Create or change a topic on one broker. The broker registers it with the name servers before this returns."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        await self._brokers.call(broker, RequestCode.CREATE_TOPIC, fields)
        self._routes.invalidate(topic)

    async def delete_topic(self, topic: str, brokers: list[str]) -> None:
        """Delete a topic with its messages and offsets from brokers, then from all name servers."""
        for broker in brokers:
            await self._brokers.call(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        await self._routes.call_all(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, {"topic": topic})
        self._routes.invalidate(topic)

    async def has_group(self, broker: str, group: str) -> bool:
        """Return whether a broker has a consumer group. A broker that creates groups automatically creates it here."""
        allowed = (ResponseCode.GROUP_NOT_EXIST,)
        response = await self._brokers.call(broker, RequestCode.GET_GROUP_CONFIG, {"group": group}, allowed=allowed)
        return response.code == ResponseCode.SUCCESS

    async def put_group(self, broker: str, group: str) -> None:
        """Create a consumer group on one broker with RocketMQ's defaults, or reset an existing one to them."""
        body = msgspec.json.encode({"groupName": group})
        await self._brokers.call(broker, RequestCode.CREATE_GROUP, {}, body)

    async def delete_group(self, broker: str, group: str) -> None:
        """Delete a consumer group and its committed offsets."""
        await self._brokers.call(broker, RequestCode.DELETE_GROUP, {"groupName": group, "cleanOffset": "true"})

    async def runtime(self, broker: str) -> Mapping[str, str]:
        """Return the status of a broker: version, boot time, disk, queues."""
        response = await self._brokers.call(broker, RequestCode.GET_BROKER_RUNTIME_INFO, {})
        with decoding_response():
            return {name: str(value) for name, value in loose_json.parse(response.body)["table"].items()}

    async def config(self, broker: str) -> Mapping[str, str]:
        """Return the settings that a broker currently uses."""
        response = await self._brokers.call(broker, RequestCode.GET_BROKER_CONFIG, {})
        lines = (line.partition("=") for line in response.body.decode(errors="replace").splitlines())
        return {name.strip(): value.strip() for name, separator, value in lines if separator}

    async def kv(self, namespace: str, key: str) -> str | None:
        """Return a value of the name servers' key-value configuration."""
        response = await self._routes.call(RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key})
        return response.fields.get("value") if response.code == ResponseCode.SUCCESS else None

    async def layout(self, topic: str) -> dict[str, int]:
        """Return the registered number of queues of a topic by broker. It is empty for other topics."""
        entries = (entry.rpartition(":") for entry in (await self.kv(LAYOUTS, topic) or "").split(";"))
        return {broker: int(count) for broker, _, count in entries if broker and count.isdigit()}

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        await self._routes.call_all(RequestCode.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})

    async def delete_kv(self, namespace: str, key: str) -> None:
        await self._routes.call_all(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})
