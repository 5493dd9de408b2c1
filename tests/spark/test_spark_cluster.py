"""The same code on a standalone cluster: a master and two workers, whose Python does not have mqgate.

The package is built and shipped with the job. The workers' Python is a bare one that is pointed to the libraries of
this environment: editable installs do not come along that way, so mqgate can only come from the package.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds
import pytest
from spark_calls import fill, until

from class_archive import LEAN_JAVA, SPARK, reading
from mqgate.client import Client
from mqgate.core.events import EVENTS_TOPIC
from mqgate.java import find_java
from mqgate.stats.engine import FILE as STATS
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore
from mqgate.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
LEAN = str(ROOT / "tests" / "lean")
LIBRARIES = sysconfig.get_path("purelib")
SPARK_HOME = Path(LIBRARIES) / "pyspark"
PATIENCE = 90.0
# This tests where the code comes from. A few rows cost more to compile, or to plan again, than to process.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A Python without mqgate."""
    bare = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)  # noqa: S603 - ours
    python = str(bare / "bin" / "python")
    return os.environ | {
        # Also for executors, which are started by workers.
        "JDK_JAVA_OPTIONS": f"{LEAN_JAVA} {reading(SPARK)}",
        "JAVA_HOME": str(find_java(17, "Spark").resolve().parents[1]),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONPATH": f"{LEAN}{os.pathsep}{LIBRARIES}",
    }


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; Spark takes packages by the name .zip."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)  # noqa: S603 - ours
    (wheel,) = directory.glob("*.whl")
    return Path(shutil.copy(wheel, directory / "mqgate.zip"))


class Cluster(NamedTuple):
    """Where it listens, and where its workers put what jobs leave."""

    master: str
    home: Path

    def executors(self) -> set[Path]:
        """Of all jobs so far."""
        return set(self.home.glob("work-*/app-*/*/stderr"))


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each, on loopback."""
    home = tmp_path_factory.mktemp("cluster")
    port, *pages = _free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    spark_class = [str(SPARK_HOME / "bin" / "spark-class")]
    host = ["--host", "127.0.0.1"]
    parts = [["org.apache.spark.deploy.master.Master", *host, "--port", str(port), "--webui-port", str(pages[0])]]
    parts += [
        ["org.apache.spark.deploy.worker.Worker", *host, "--cores", "1", "--memory", "1g", "--webui-port", str(page)]
        for page in pages[1:]
    ]
    for number, part in enumerate(parts[1:]):
        part += ["--work-dir", str(home / f"work-{number}"), url]
    processes = []
    try:
        for number, part in enumerate(parts):
            log = home / f"part-{number}.log"
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen([*spark_class, *part], env=environment, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603 - Spark's
                )
            if number == 0:
                _wait_for(log, "New state: ALIVE", 1)
        _wait_for(home / "part-0.log", "Registering worker", 2)
        yield Cluster(url, home)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_job_runs_on_a_cluster_that_gets_the_package_with_it(
    cluster: Cluster, environment: dict[str, str], package: Path, client: Client, topic: str
) -> None:
    """Nothing but the archive brings the code to the workers."""
    target = f"{topic}-counts"
    client.topics.put(target, {"queues": 1})
    for tag, count in {"a": 30, "b": 20}.items():
        fill(client, topic, count, tag=tag)
    bare = [environment["PYSPARK_PYTHON"], "-c", "import mqgate"]
    assert subprocess.run(bare, env=environment, check=False, capture_output=True).returncode, "a test of nothing"  # noqa: S603 - ours

    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, "--py-files", str(package)]
    submit += [*_conf(CONF), str(Path(__file__).with_name("cluster_job.py")), client.url, topic, target]
    done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)  # noqa: S603 - Spark's

    assert done.returncode == 0, done.stdout + done.stderr
    (queue,) = client.queues(target)
    (batch,) = client.read_queue(target, queue["queue"], 0, 10, ["body"])
    counted = [json.loads(body) for body in batch.column("body").to_pylist()]
    assert {message["tag"]: message["count"] for message in counted} == {"a": 30, "b": 20}
    (line,) = re.findall(r'^\{"workers".*$', done.stdout, re.MULTILINE)
    assert all("mqgate.zip" in where for where in json.loads(line)["workers"])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_pipelines_run_on_a_cluster(
    cluster: Cluster, environment: dict[str, str], package: Path, tmp_path: Path
) -> None:
    """With the same command: figures are counted and messages archived by workers that got the code with the job."""
    before = cluster.executors()
    server = ServerProcess(tmp_path / "data").start()
    try:
        with Client(server.url) as client:
            client.topics.put("orders", {"queues": 2})
            fill(client, "orders", 50)
            # Gateways tell what happened a second later.
            until(lambda: any(queue["max"] for queue in client.queues(EVENTS_TOPIC, times=False)))
        config = tmp_path / "mqgate.toml"
        asked = 'archive = ["orders"]\nreconcile_hours = 1\ntrigger = 0.2\n'
        config.write_text(f'[sqlite]\ndirectory = "{tmp_path}/data"\n[pipelines]\n{asked}')
        # On the driver's machine the workers' kind of Python has mqgate: Spark plans with it. Elsewhere it has not.
        # One of the workers will do: that both of them can is shown by the job above.
        conf = " ".join(_conf(CONF | {"spark.cores.max": "1"}))
        driver = environment | {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join((LEAN, LIBRARIES, str(package))),
            "PYSPARK_SUBMIT_ARGS": f"--py-files {package} {conf} pyspark-shell",
        }
        command = [sys.executable, "-m", "mqgate.cli.main", "--url", server.url, "pipeline", "run", "--once"]
        command += ["--config", str(config), "--directory", str(tmp_path / "pipelines"), "--master", cluster.master]
        done = subprocess.run(command, env=driver, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)  # noqa: S603 - ours
    finally:
        server.stop()

    assert done.returncode == 0, done.stdout + done.stderr
    store = StatsStore(SqliteDatabase(tmp_path / "data" / STATS, is_writing=False), is_writing=False)
    assert store.select("SELECT sum(n) FROM stats_traffic_minute WHERE topic = 'orders'") == [(50,)]
    assert store.select("SELECT sum(n) FROM stats_traffic_hour WHERE topic = 'orders'") == [(50,)]
    archived = ds.dataset(tmp_path / "pipelines" / "archive", format="parquet", partitioning="hive")
    assert archived.to_table(["offset"], filter=ds.field("topic") == "orders").num_rows == 50
    assert cluster.executors() - before, "they did the work"


def _conf(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _wait_for(log: Path, words: str, times: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while log.read_text().count(words) < times:
        assert time.monotonic() < deadline, f"not in time: {log.read_text()}"
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with socket.socket() as first, socket.socket() as second, socket.socket() as third, socket.socket() as fourth:
        sockets = [first, second, third, fourth][:count]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [connection.getsockname()[1] for connection in sockets]
