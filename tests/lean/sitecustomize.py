"""What is of no use to the Python processes that tests start, and takes each of them a while at its start."""

import sys
from contextlib import suppress
from importlib import import_module

# Spark's look for pyspark in an archive first, and compile what they find there, each of them again. The same modules
# are installed beside it, compiled once.
sys.path[:] = [place for place in sys.path if not place.endswith(("/pyspark.zip", "-src.zip"))]

# Only tools of ours bring it. But structlog and httpx load it wherever it is, to look pretty on a terminal.
sys.modules["rich"] = sys.modules["httpx._main"] = None

# These daemons of Spark's fork a process whenever one is wanted, and it has at once what the daemon has. Nothing that
# begins threads, as pyarrow does; nothing of ours, whose location tests set.
if sys.orig_argv[-1] in {"pyspark.worker", "pyspark.sql.worker.plan_data_source_read"}:
    for name in ("pyspark.sql.datasource", "pyspark.sql.streaming.datasource", "httpx", "httpcore", "msgspec"):
        with suppress(ImportError):
            import_module(name)
