"""A Spark session for topics: bound to loopback, in UTC, with Arrow, and few log messages.

These are defaults. Options of the caller, of `spark-submit` and of spark-defaults.conf take precedence.
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
# Not extraJavaOptions: users set those, and the JVM applies them after these.
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark redacts option values by name, by default only `url`.
    "spark.sql.redaction.options.regex": "(?i)url|key|secret|token|password|credential",
    "spark.ui.enabled": "false",
}
# A local driver needs no connections from other machines.
_LOCAL_DEFAULTS = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


class PysparkMissing(ImportError):
    """The extra `spark` is not installed."""

    def __init__(self) -> None:
        super().__init__('Spark is not installed: pip install "mqgate[spark]"', name="pyspark")


def session(app_name: str = "mqgate", master: str | None = None, **conf: object) -> "SparkSession":
    """Return the active session or a new one. Pass dotted names as `**{"spark.sql.shuffle.partitions": 2}`.

    The default of `master` is `local[*]`, or the choice of `spark-submit`. Raise PysparkMissing or JavaNotFound with
    the remedy.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and its import takes a second
    except ModuleNotFoundError as error:
        raise PysparkMissing from error

    conf_texts = {name: _text(value) for name, value in conf.items()}
    if SparkSession.getActiveSession() is not None:
        return _build(SparkSession.builder, conf_texts)
    master, defaults = _launch(master or conf_texts.get("spark.master"), conf_texts)
    built = _build(SparkSession.builder.appName(app_name).master(master), defaults | conf_texts)
    if sys.stderr.isatty():
        from mqgate.spark.progress import ProgressLine  # noqa: PLC0415 - imports pyspark

        built.streams.addListener(ProgressLine(sys.stderr))
    return built


def _build(builder: "SparkSession.Builder", conf: dict[str, str]) -> "SparkSession":
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _launch(master: str | None, conf_texts: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Start the JVM if there is none. Return the master and the defaults that no configuration overrides."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra

    if "spark.pyspark.python" in conf_texts:
        os.environ["PYSPARK_PYTHON"] = conf_texts["spark.pyspark.python"]
    # Otherwise workers run the `python3` of PATH, which may lack pyarrow and mqgate.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no public way to ask
        # The launcher treats this process as a shell and would draw progress bars.
        needed = {"spark.ui.showConsoleProgress": "false"} | _quiet() | conf_texts
        needed |= {"spark.master": master} if master else {}
        with _environment(master):
            # These options only take effect when the JVM starts.
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(needed.items())))  # noqa: SLF001
    # With a JVM, SparkConf contains the options of spark-submit and spark-defaults.conf.
    given = SparkConf()
    master = master or given.get("spark.master", "local[*]") or "local[*]"
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS if _is_local(master) else {})
    if find_spec("pandas") is None:
        # Without pandas, Spark cannot pass UDF arguments as Arrow and logs a warning.
        defaults |= {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}
    return master, {name: value for name, value in defaults.items() if not given.contains(name)}


@contextmanager
def _environment(master: str | None) -> Iterator[None]:
    """Set the environment of the Spark launcher. Under spark-submit the JVM is already running."""
    before = dict(os.environ)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = find_java(_MIN_JAVA, "Spark").resolve()
        # A wrapper script is not in a Java home. Spark finds it in PATH.
        is_home = java.parts[-2:] == ("bin", "java")
        os.environ["JAVA_HOME"] = str(java.parents[1]) if is_home else ""
    # A local Spark installation may set a remote master in spark-defaults.conf, which loopback cannot reach.
    is_bundled_spark = not {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys()
    if _is_local(master or ("local" if is_bundled_spark else "")):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    try:
        yield
    finally:
        for name in ("JAVA_HOME", "SPARK_LOCAL_IP"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def _quiet() -> dict[str, str]:
    """Return the option that sets the log level of Spark to WARN. Python logging is not affected."""
    configuration = Path(__file__).with_name("log4j2.properties")
    # The file does not exist if the package was shipped as an archive.
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={configuration.as_uri()}"} if configuration.is_file() else {}


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
