"""Apache's Java client and admin tool, in one JVM for all tests of a worker; `java/Interop.java` is its other end."""

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
    """The program's classes; None where there is only a Java to run with, and no compiler."""
    compiler = shutil.which("javac", path=str(find_java().parent)) or shutil.which("javac")
    if compiler is None:
        return None
    command = [compiler, "--release", "11", "-encoding", "UTF-8", "-proc:none", "-nowarn", "-cp", f"{jars()}/*"]
    subprocess.run([*command, "-d", str(directory), str(_SOURCE)], check=True, capture_output=True)  # noqa: S603 - what the user installed
    return directory


class JavaClient:
    """One call at a time; RuntimeError with Java's own words if one fails there."""

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
        answer = await asyncio.wait_for(asyncio.to_thread(self._exchange, line), _PATIENCE)
        if not answer:
            raise RuntimeError(f"Java ended while it was asked to {verb}: see {self._log.name!r}")
        told = json.loads(answer)
        if "error" in told:
            raise RuntimeError(told["error"])
        return told["value"]

    def _exchange(self, line: bytes) -> bytes:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()


class Java:
    """The same in one namespace."""

    def __init__(self, client: JavaClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def wire(self, name: str) -> str:
        """A name as brokers know it."""
        return f"{self._namespace}%{name}" if self._namespace else name

    async def send(self, topic: str, *messages: Json, compression: str = "ZLIB", **how: Any) -> list[Json]:
        """Send messages with `body` as bytes or text; an `id`, a `queue` and an `offset` each."""
        given = [{**message, "body": _base64(message["body"])} for message in messages]
        place = {"namespace": self._namespace, "topic": topic}
        return list(await self._client.call("send", messages=given, compression=compression, **place, **how))

    async def consume(self, topic: str, group: str, most: int, *, tags: str = "*", wait: float = 45.0) -> list[Json]:
        """Consume as a member of a group that exists, so many messages, or fewer if no more come in time.

        A client that did not see all queues at first looks again after 20 s.
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
        """What a command of the admin tool prints."""
        return str(await self._client.call("mqadmin", arguments=arguments))

    async def property_names(self) -> Sequence[str]:
        return sorted(set(await self._client.call("property names")))

    async def make_topic(self, topic: str, queues: int, *, perm: int = 6, **place: str) -> None:
        """Make or change a topic: of a `cluster`, or at a broker's `address`."""
        await self.mqadmin(
            "updateTopic", "-t", self.wire(topic), "-r", str(queues), "-w", str(queues), "-p", str(perm), *_at(place)
        )

    async def drop_topic(self, topic: str, cluster: str) -> None:
        await self.mqadmin("deleteTopic", "-t", self.wire(topic), "-c", cluster)

    async def make_group(self, group: str, *more: str, **place: str) -> None:
        """Make or change a consumer group, as an operator does where brokers do not make them by themselves."""
        await self.mqadmin("updateSubGroup", "-g", self.wire(group), *more, *_at(place))


def _at(place: dict[str, str]) -> tuple[str, str]:
    return ("-c", place["cluster"]) if "cluster" in place else ("-b", place["address"])


def _base64(body: bytes | str) -> str:
    return base64.b64encode(body if isinstance(body, bytes) else body.encode()).decode()
