"""The configuration of a broker."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["SMALL_HEAP", "BrokerSpec"]

# With less direct memory, timers and the redelivery of POP stop without an error.
SMALL_HEAP = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """One master broker. `settings` are additional lines of broker.conf, which override the defaults."""

    name: str
    cluster: str = "mqgate"
    is_sync_flush: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    # Heap and compiler. A benchmark needs more heap and the second compiler stage.
    java_options: tuple[str, ...] = SMALL_HEAP

    def record(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "java_options": list(self.java_options)}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "BrokerSpec":
        return cls(**{**record, "java_options": tuple(record["java_options"])})
