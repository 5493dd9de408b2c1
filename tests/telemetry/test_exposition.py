"""Metrics of several processes in one text."""

from prometheus_client.parser import text_string_to_metric_families

from mqgate.telemetry.exposition import merge, worker_states
from mqgate.telemetry.metrics import Metrics


def _metrics(worker: int, published: int, *topics: str) -> bytes:
    metrics = Metrics()
    for topic in topics:
        metrics.published.labels(topic).inc(published)
    return metrics.render(worker)


def test_every_family_is_there_once_with_the_samples_of_all() -> None:
    """Prometheus rejects a scrape that describes a family twice."""
    text = merge([_metrics(1, 3, "orders"), _metrics(2, 4, "orders", "payments")]).decode()

    described = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    (published,) = [each for each in text_string_to_metric_families(text) if each.name == "mqgate_published"]
    samples = {
        (sample.labels["worker"], sample.labels["topic"]): sample.value
        for sample in published.samples
        if sample.name.endswith("_total")
    }
    assert len(described) == len(set(described)) > 20
    assert samples == {("1", "orders"): 3, ("2", "orders"): 4, ("2", "payments"): 4}


def test_one_text_is_unchanged() -> None:
    """Nothing is lost or sorted anew."""
    text = _metrics(1, 3, "orders")

    assert merge([text]) == text


def test_samples_of_a_family_stay_together() -> None:
    """The format requires it."""
    lines = merge([_metrics(1, 1, "a"), _metrics(2, 1, "a")]).decode().splitlines()
    owners = []
    for line in lines:
        if line.startswith("# HELP "):
            owners.append(line.split()[2])
        elif not line.startswith("#"):
            name = line.split("{")[0]
            assert name.startswith(owners[-1].removesuffix("_total")), line

    assert owners


def test_a_worker_that_did_not_respond_is_shown() -> None:
    """Its counters are missing, and a sum over workers is too low."""
    (family,) = text_string_to_metric_families(worker_states({"2": False, "1": True}).decode())

    assert {sample.labels["worker"]: sample.value for sample in family.samples} == {"1": 1, "2": 0}
