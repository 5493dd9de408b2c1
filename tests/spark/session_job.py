"""A program of its own that asks for a session, runs a stream, and prints what it got as JSON.

`python session_job.py DIRECTORY OPTIONS`, the latter for its JVM.
"""

import json
import logging
import os
import sys
from pathlib import Path

from pyspark.sql.functions import udf

from mqgate.spark.session import session


def interpreter() -> str:
    """Which Python a worker runs; and it warns."""
    logging.getLogger("mqgate.spark").warning("a worker warned")
    return sys.executable


def main(directory: Path, java_options: str) -> None:
    java_home = os.environ.get("JAVA_HOME")
    spark = session(
        "own",
        "local[1]",
        **{
            "spark.driver.extraJavaOptions": java_options,
            "spark.sql.session.timeZone": "Europe/Berlin",
            "spark.sql.warehouse.dir": directory / "warehouse",
        },
    )
    (directory / "lines").mkdir()
    (directory / "lines" / "one").write_text("a\nb\nc\n", "utf-8")
    lines = spark.readStream.text(str(directory / "lines"))
    query = lines.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    found = {
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "worker": spark.range(1).select(udf(interpreter, "string")()).first()[0],
        "ui": spark.sparkContext.uiWebUrl,
        "host": spark.conf.get("spark.driver.host"),
        "java_home_is_kept": os.environ.get("JAVA_HOME") == java_home,
        "same": session() is spark,
    }
    spark.stop()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
