"""A Spark session that suits topics: on loopback, in UTC, by Arrow, quiet.

What `session` chooses is a default. Whatever its caller, `spark-submit` or spark-defaults.conf say, they win.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mqgate.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PysparkMissing", "session"]

_MIN_JAVA = 17
_LOOPBACK = "127.0.0.1"
# Not extraJavaOptions: those are the user's, and come behind these.
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark hides values of options by their name, and knows only `url`; ours carry keys.
    "spark.sql.redaction.options.regex": "(?i)url|key|secret|token|password|credential",
    "spark.ui.enabled": "false",
}
# On this machine nobody else is to be let in, and no network interface to be asked for an address.
_ON_THIS_MACHINE = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


class PysparkMissing(ImportError):
    """Spark is an extra, and it was not installed."""

    def __init__(self) -> None:
        super().__init__('Spark is not installed: pip install "mqgate[spark]"', name="pyspark")


def session(app_name: str = "mqgate", master: str | None = None, **conf: object) -> "SparkSession":
    """The session that is there, or a new one; names with dots as `**{"spark.sql.shuffle.partitions": 2}`.

    `master` is `local[*]` unless `spark-submit` chose another. Raises PysparkMissing or JavaNotFound, whose texts
    say how to get what is missing.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra; and it takes a second
    except ModuleNotFoundError as error:
        raise PysparkMissing from error

    chosen = {name: _text(value) for name, value in conf.items()}
    if SparkSession.getActiveSession() is not None:
        return _build(SparkSession.builder, chosen)
    master, undecided = _launched(master or chosen.get("spark.master"), chosen)
    built = _build(SparkSession.builder.appName(app_name).master(master), undecided | chosen)
    if sys.stderr.isatty():
        from mqgate.spark.progress import ProgressLine  # noqa: PLC0415 - imports pyspark

        built.streams.addListener(ProgressLine(sys.stderr))
    return built


def _build(builder: "SparkSession.Builder", conf: dict[str, str]) -> "SparkSession":
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _launched(master: str | None, chosen: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Start Spark's JVM, if there is none yet; the master, and what nobody has decided."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra

    if "spark.pyspark.python" in chosen:
        os.environ["PYSPARK_PYTHON"] = chosen["spark.pyspark.python"]
    # Otherwise workers run the `python3` of PATH, which may have no pyarrow, nor us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no public way to ask
        # The launcher takes us for a shell, and would have bars drawn.
        needed = {"spark.ui.showConsoleProgress": "false"} | _quiet() | chosen
        needed |= {"spark.master": master} if master else {}
        with _environment(master):
            # What the JVM is started with cannot be given later; the rest is better asked of it first.
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(needed.items())))  # noqa: SLF001
    # With a JVM, this holds what spark-submit and spark-defaults.conf say.
    given = SparkConf()
    master = master or given.get("spark.master", "local[*]") or "local[*]"
    defaults = _EVERYWHERE | (_ON_THIS_MACHINE if _is_local(master) else {})
    if find_spec("pandas") is None:
        # Spark hands the arguments of a plain UDF over as Arrow only where pandas is, and warns where it is not.
        defaults |= {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}
    return master, {name: value for name, value in defaults.items() if not given.contains(name)}


@contextmanager
def _environment(master: str | None) -> Iterator[None]:
    """What only Spark's launcher reads. Under spark-submit a JVM runs already, and nothing is launched."""
    before = dict(os.environ)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = find_java(_MIN_JAVA, "Spark").resolve()
        # A wrapper stands in no such directory; Spark finds it in PATH, as we did.
        is_home = java.parts[-2:] == ("bin", "java")
        os.environ["JAVA_HOME"] = str(java.parents[1]) if is_home else ""
    # A Spark of the house may have another master in its spark-defaults.conf, which loopback would cut off.
    is_our_own = not {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys()
    if _is_local(master or ("local" if is_our_own else "")):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    try:
        yield
    finally:
        for name in ("JAVA_HOME", "SPARK_LOCAL_IP"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def _quiet() -> dict[str, str]:
    """Spark's own log at WARN. Python's, ours too, goes to stderr by another way and is not touched."""
    configuration = Path(__file__).with_name("log4j2.properties")
    # Not there where this package was shipped as an archive.
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={configuration.as_uri()}"} if configuration.is_file() else {}


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
