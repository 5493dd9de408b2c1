"""GET /livez, /readyz, /metrics and /v1/info."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from mqgate import __version__
from mqgate.control.access.service import Access
from mqgate.control.checks import Check, run_check
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.operation import describe
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics

_CAPABILITIES = [
    "message",
    "queue",
    "broadcast",
    "long-poll",
    "delay",
    "idempotency",
    "dead-letters",
    "bulk-read",
    "mq",
]


class ReadinessOut(Struct):
    status: str
    parts: dict[str, str]


class LivenessOut(Struct):
    status: str


class InfoOut(Struct, rename="camel"):
    name: str
    version: str
    engine: str
    open: bool
    capabilities: list[str]
    limits: dict[str, float]


class HealthApi:
    def __init__(
        self,
        *,
        access: Access,
        metrics: Metrics,
        settings: HttpSettings,
        engine: str,
        checks: Mapping[str, Check],
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._settings = settings
        self._engine = engine
        self._checks = checks
        self.is_stopping = False
        # Replaced if several processes share one address: it then returns the metrics of all of them.
        self.render_metrics: Callable[[], Awaitable[bytes]] = self._render

    @describe("livez", "health", responses={200: LivenessOut}, is_public=True, is_health=True, max_body_bytes=0)
    async def livez(self, _: Request) -> Response:
        """Report that the process is running."""
        return reply(200, LivenessOut("ok"))

    @describe(
        "readyz",
        "health",
        responses={200: ReadinessOut, 503: ReadinessOut},
        is_public=True,
        is_health=True,
        max_body_bytes=0,
    )
    async def readyz(self, _: Request) -> Response:
        """Report whether the gateway and its stores are ready."""
        parts: dict[str, str] = {}
        is_ready = not self.is_stopping
        for name, check in self._checks.items():
            result = await run_check(check)
            parts[name] = result if isinstance(result, str) else "ok"
            is_ready &= parts[name] == "ok"
            # A check of several servers passes if the remaining servers can serve; failed ones are listed.
            parts |= {} if isinstance(result, str) else result
        parts["server"] = "stopping" if self.is_stopping else "ok"
        status = "unavailable" if not is_ready else "ok" if set(parts.values()) == {"ok"} else "degraded"
        response = reply(200 if is_ready else 503, ReadinessOut(status, parts))
        return response if is_ready else response._replace(headers=[(b"retry-after", b"1")])

    @describe("metrics", "health", responses={200: str}, content_type="text/plain", is_health=True)
    async def metrics(self, _: Request) -> Response:
        """Return the Prometheus metrics."""
        return Response(200, await self.render_metrics(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _render(self) -> bytes:
        return self._metrics.render()

    @describe("info", "health", responses={200: InfoOut})
    async def info(self, _: Request) -> Response:
        """Show the version, engine, capabilities and limits."""
        settings = self._settings
        return reply(
            200,
            InfoOut(
                name="mqgate",
                version=__version__,
                engine=self._engine,
                open=self._access.is_open,
                capabilities=_CAPABILITIES,
                limits={
                    "messageBytes": settings.max_message_bytes,
                    "requestBytes": settings.max_request_bytes,
                    "batch": settings.max_batch,
                    "bulkMessages": settings.max_bulk_messages,
                    "waitSeconds": 60,
                    "holdSeconds": 43_200,
                },
            ),
        )
