"""What a broker should be like."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["SMALL_HEAP", "BrokerSpec"]

# Less direct memory stops timers and the redelivery of POP, silently.
SMALL_HEAP = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """One master broker. `settings` are further lines of broker.conf and win over ours."""

    name: str
    cluster: str = "mqgate"
    is_sync_flush: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    # Heap and compiler; for a benchmark choose more heap and leave the compiler its second stage.
    java_options: tuple[str, ...] = SMALL_HEAP

    def record(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {**asdict(self), "java_options": list(self.java_options)}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "BrokerSpec":
        return cls(**{**record, "java_options": tuple(record["java_options"])})
