"""The RocketMQ servers: their files and command lines.

Each server has its own directory (logs, configuration, store). TLS is off, because every server would take seconds to
create a certificate at its start. A broker uses two ports: its own, and for the "fast" listener the one two below.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from mqgate.stack.broker_spec import BrokerSpec
from mqgate.stack.no_replication import write_plugin
from mqgate.stack.part import Part

__all__ = ["BROKER_PORTS", "RocketMq"]

BROKER_PORTS = (-2,)
_SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_BROKER = {
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    # A restarted name server has no entries until brokers register again; 10 s is the minimum.
    "registerNameServerPeriod": "10000",
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "mappedFileSizeTimerLog": "1048576",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "10000",
    # An automatically created topic exists on one broker only.
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "timerWheelEnable": "true",
    "timerMaxDelaySec": "63158400",
    "timerEnableRetryUntilSuccess": "true",
    # The default of one second costs an idle broker half a core.
    "timerFlushIntervalMs": "60000",
    # A thread of a starting broker runs a busy loop for this time.
    "transactionMetricFlushInterval": "200",
    "enableRetryTopicV2": "true",
    "retrieveMessageFromPopRetryTopicV1": "false",
    "recallMessageEnable": "true",
    "fileReservedTime": "96",
    # By default a broker refuses requests that waited 200 ms, which is frequent on a small, busy machine.
    "waitTimeMillsInSendQueue": "2000",
    # A nearly full disk must not delete messages that a test still counts.
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
}


class RocketMq:
    """Factory of the RocketMQ parts for one Java and one directory of jars."""

    def __init__(self, java: Path, lib: Path) -> None:
        self._java = java
        self._lib = lib
        self._plugin = lib.parent / "no-replication.jar"

    def name_server(self, home: Path, port: int) -> Part:
        conf = _write(home / "namesrv.conf", f"listenPort={port}\nbindAddress=127.0.0.1\n")
        options = ("-Xmx64m", "-XX:MaxDirectMemorySize=64m", *_SMALL_JVM)
        return Part(
            name="namesrv",
            kind="name-server",
            port=port,
            command=self._command(home, options, "namesrv.NamesrvStartup", "-c", conf),
            ready_line="The Name Server boot success",
        )

    def broker(self, home: Path, port: int, spec: BrokerSpec, name_server: str) -> Part:
        settings = {
            "brokerClusterName": spec.cluster,
            "brokerName": spec.name,
            "flushDiskType": "SYNC_FLUSH" if spec.is_sync_flush else "ASYNC_FLUSH",
            "namesrvAddr": name_server,
            "listenPort": str(port),
            "storePathRootDir": str(home / "store"),
            **_BROKER,
            **spec.settings,
        }
        write_plugin(self._plugin)
        conf = _write(home / "broker.conf", "".join(f"{key}={value}\n" for key, value in settings.items()))
        return Part(
            name=spec.name,
            kind="broker",
            port=port,
            command=self._command(home, spec.java_options, "broker.BrokerStartup", "-c", conf),
            ready_line="boot success",
            asked=spec.record(),
        )

    def proxy(self, home: Path, port: int, cluster: str, name_server: str) -> Part:
        """Return a proxy: gRPC on the port, remoting on the next one, both on all interfaces without an alternative."""
        settings = {
            "rocketMQClusterName": cluster,
            "proxyMode": "CLUSTER",
            "namesrvAddr": name_server,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
        }
        conf = _write(home / "rmq-proxy.json", json.dumps(settings, indent=2))
        options = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m", *_SMALL_JVM)
        return Part(
            name="proxy",
            kind="proxy",
            port=port,
            command=self._command(home, options, "proxy.ProxyStartup", "-pc", conf),
            ready_line="rocketmq-proxy startup successfully",
        )

    def _command(self, home: Path, options: Sequence[str], main: str, *arguments: str) -> tuple[str, ...]:
        return (
            str(self._java),
            *options,
            "-Dtls.server.mode=disabled",
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            # Logs are written to user.home, and libraries are unpacked to the temporary directory at each start.
            f"-Duser.home={home}",
            f"-Djava.io.tmpdir={home}",
            f"-Drocketmq.home.dir={home}",
            "-cp",
            # A class archive requires that the class path starts with the one of its creation.
            f"{self._lib}/*:{self._plugin}",
            f"org.apache.rocketmq.{main}",
            *arguments,
        )


def _write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)
