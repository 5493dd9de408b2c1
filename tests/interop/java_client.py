"""Apache's Java client and admin tool, in one JVM per test worker. `java/Interop.java` is the other side."""

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqgate.stack import find_java, jars

Json = dict[str, Any]
_SOURCE = Path(__file__).parent / "java" / "Interop.java"
_PATIENCE = 60.0


def compiled(directory: Path) -> Path | None:
    """Return the directory of the compiled program, or None if there is no Java compiler."""
    compiler = shutil.which("javac", path=str(find_java().parent)) or shutil.which("javac")
    if compiler is None:
        return None
    command = [compiler, "--release", "11", "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", f"{jars()}/*"]
    subprocess.run([*command, "-d", str(directory), str(_SOURCE)], check=True, capture_output=True)  # noqa: S603 - what the user installed
    return directory


class JavaClient:
    """A connection to the JVM, with one call at a time. A call that fails in Java raises RuntimeError."""

    def __init__(self, classes: Path, home: Path, name_server: str) -> None:
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={home}"]
        command = [str(find_java()), *options, "-cp", f"{classes}:{jars()}/*", "Interop", name_server]
        self._log = (home / "java.log").open("wb")
        self._process = subprocess.Popen(  # noqa: S603 - what the user installed
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    async def call(self, verb: str, **request: Any) -> Any:
        line = json.dumps({"verb": verb, **request}).encode() + b"\n"
        response = await asyncio.wait_for(asyncio.to_thread(self._exchange, line), _PATIENCE)
        if not response:
            raise RuntimeError(f"Java exited during the call {verb}: see {self._log.name!r}")
        result = json.loads(response)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["value"]

    def _exchange(self, line: bytes) -> bytes:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()


class Java:
    """The Java client in one namespace."""

    def __init__(self, client: JavaClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def wire(self, name: str) -> str:
        """Return a name with its namespace, as brokers store it."""
        return f"{self._namespace}%{name}" if self._namespace else name

    async def send(self, topic: str, *messages: Json, compression: str = "ZLIB", **how: Any) -> list[Json]:
        """Send messages with `body` as bytes or text. Return `id`, `queue` and `offset` of each."""
        given = [{**message, "body": _base64(message["body"])} for message in messages]
        place = {"namespace": self._namespace, "topic": topic}
        return list(await self._client.call("send", messages=given, compression=compression, **place, **how))

    async def consume(self, topic: str, group: str, most: int, *, tags: str = "*", wait: float = 45.0) -> list[Json]:
        """Consume up to `most` messages as a member of an existing group, until `wait` seconds have passed.

        A client that did not find all queues at first refreshes the route after 20 s.
        """
        found = await self._client.call(
            "consume",
            namespace=self._namespace,
            topic=topic,
            group=group,
            most=most,
            tags=tags,
            waitMs=int(wait * 1000),
        )
        return [{**message, "body": base64.b64decode(message["body"])} for message in found]

    async def mqadmin(self, *arguments: str) -> str:
        """Return the output of a command of the admin tool."""
        return str(await self._client.call("mqadmin", arguments=arguments))

    async def property_names(self) -> Sequence[str]:
        return sorted(set(await self._client.call("property names")))

    async def create_topic(self, topic: str, queues: int, *, perm: int = 6, **place: str) -> None:
        """Create or change a topic of a `cluster`, or on the broker at an `address`."""
        await self.mqadmin(
            "updateTopic", "-t", self.wire(topic), "-r", str(queues), "-w", str(queues), "-p", str(perm), *_at(place)
        )

    async def drop_topic(self, topic: str, cluster: str) -> None:
        await self.mqadmin("deleteTopic", "-t", self.wire(topic), "-c", cluster)

    async def create_group(self, group: str, *more: str, **place: str) -> None:
        """Create or change a consumer group, as an operator does if brokers do not create groups automatically."""
        await self.mqadmin("updateSubGroup", "-g", self.wire(group), *more, *_at(place))


def _at(place: dict[str, str]) -> tuple[str, str]:
    return ("-c", place["cluster"]) if "cluster" in place else ("-b", place["address"])


def _base64(body: bytes | str) -> str:
    return base64.b64encode(body if isinstance(body, bytes) else body.encode()).decode()
