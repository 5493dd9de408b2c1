"""Two brokers, Redis, PostgreSQL and three gateways, each as a process on this machine."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import redis

from mqgate.stack import BrokerSpec, Stack
from mqgate.stack.guard import guard

__all__ = ["BROKERS", "Site"]

BROKERS = ("broker-a", "broker-b")
GATEWAYS = 3
_PATIENCE = 60.0
# Timers are ours; a broker without any of its own starts in half the CPU (it could remove no topic).
_NO_TIMERS = {"timerWheelEnable": "false"}


class Site:
    """The servers under test. `open` starts and `close` stops them; a guard stops them if this process is killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stack = Stack(directory / "stack")
        self.gateways: list[Gateway] = []
        self._gateways_turn = threading.Lock()

    def open(self) -> None:
        guard(self.stack, os.getpid())
        self.stack.up([BrokerSpec(name=name, settings=_NO_TIMERS) for name in BROKERS], ("redis", "postgres"))
        self._forget_on_restart()
        config = self.directory / "mqgate.toml"
        config.write_text(
            '[messages]\nengine = "rocketmq"\n[logging]\nformat = "json"\n'
            f'[rocketmq]\nname_servers = ["{self.stack.name_server}"]\n'
            f'[leases]\nengine = "redis"\n[redis]\nurl = "{self.stack.redis_url}"\n'
            f'[control]\nengine = "postgres"\n[postgres]\nurl = "{self.stack.postgres_url}"\n',
            "utf-8",
        )
        self.gateways = [Gateway(config, self.directory / f"gateway-{number}.log") for number in range(GATEWAYS)]
        self._all_serve()

    def kill_gateway(self, number: int) -> float:
        """Kill a server when all serve, wait until it serves again, and return the time of the kill."""
        with self._gateways_turn:
            self._all_serve()
            at = time.time()
            self.gateways[number].signal(signal.SIGKILL)
            self._all_serve()
        return at

    def pause_gateway(self, number: int, seconds: float) -> float:
        """Pause a server when all serve, and return the time."""
        with self._gateways_turn:
            self._all_serve()
            at = time.time()
            self.gateways[number].signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.gateways[number].signal(signal.SIGCONT)
        return at

    def _all_serve(self) -> None:
        """Wait until all serve, so that not all gateways are stopped at once."""
        deadline = time.monotonic() + _PATIENCE
        while not all(gateway.is_serving() for gateway in self.gateways):
            if time.monotonic() > deadline:
                raise RuntimeError(f"gateways are not back after {_PATIENCE:.0f} s")
            time.sleep(0.05)

    def flush_redis(self) -> None:
        with redis.Redis.from_url(self.stack.redis_url) as client:
            client.flushall()

    def kill_redis(self) -> None:
        self.stack.kill("redis")
        self.stack.start("redis")
        self._forget_on_restart()

    def _forget_on_restart(self) -> None:
        """Disable persistence, as in production. Leases of an earlier run are never valid."""
        with redis.Redis.from_url(self.stack.redis_url) as client:
            client.config_set("appendonly", "no")

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.stop()
        self.stack.down()


class Gateway:
    """A process of `mqgate serve` on its own port, which is restarted whenever it ends, until `stop`."""

    def __init__(self, config: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(config)]
        self._command += ["--port", str(self.port)]
        self._log = log
        self._is_over = False
        self._process = self._launched()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        # The exit code, if no fault killed it.
        self.ends: list[int] = []

    def is_serving(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return self._process.poll() is None

    def signal(self, sign: signal.Signals) -> None:
        self._process.send_signal(sign)
        if sign is signal.SIGKILL:
            self._process.wait()

    def stop(self) -> None:
        self._is_over = True
        self._process.kill()
        self._keeper.join()

    def _launched(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(self._command, stdout=output, stderr=output)  # noqa: S603 - our own interpreter

    def _keep(self) -> None:
        while True:
            code = self._process.wait()
            if self._is_over:
                return
            if code != -signal.SIGKILL:
                self.ends.append(code)
                time.sleep(0.5)
            self._process = self._launched()
