"""The alert rules and the dashboard of `deploy/` are accepted by Prometheus, and name metrics that exist."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_pages import ROOT

import promtool
from mqgate.telemetry.exposition import worker_states
from mqgate.telemetry.metrics import Metrics

RULES = ROOT / "deploy" / "prometheus-rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "mqgate.json"
Check = Callable[..., str]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function that runs promtool: `check("rules", file)`. It fails the test with the output of promtool."""
    path = promtool.find()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(promtool.HOW_TO_INSTALL, pytrace=False)
        pytest.skip(promtool.HOW_TO_INSTALL)

    def check(*arguments: object) -> str:
        done = subprocess.run(  # noqa: S603 - our own files
            [path, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return check


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text("utf-8"))["panels"])


def expressions() -> Iterator[str]:
    """Yield the queries of the dashboard, with its variables filled in."""
    for panel in panels():
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield expression.replace("$instance", ".*").replace("$group", ".*")


def named(text: str) -> set[str]:
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:mqgate|process)_\w+", text)}


def exported() -> set[str]:
    text = (Metrics().render() + worker_states({"1": True})).decode()
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def test_prometheus_accepts_the_alert_rules(check: Check) -> None:
    """An error in one rule would disable the whole file."""
    assert f"{len(rules())} rules found" in check("check", "rules", RULES)


def test_prometheus_accepts_every_query_of_the_dashboard(check: Check, tmp_path: Path) -> None:
    """A panel with a malformed query shows an error instead of a chart."""
    found = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(expressions())]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": found}]}), "utf-8")

    assert f"{len(found)} rules found" in check("check", "rules", file)


@pytest.mark.parametrize("text", [*(rule["expr"] for rule in rules()), *expressions()])
def test_every_metric_that_is_named_exists(text: str) -> None:
    """A rule on a metric that does not exist never fires."""
    assert named(text) <= exported()


def test_the_alert_rules_fire_and_stay_silent(check: Check, tmp_path: Path) -> None:
    """With counters and gauges as gateways export them: two scrapes a minute, for ten minutes."""
    series = {
        'mqgate_group_lag{group="billing",instance="a"}': "20000x30",
        'mqgate_group_lag{group="small",instance="a"}': "20x30",
        'mqgate_group_oldest_age_seconds{group="old",instance="a"}': "700x30",
        'mqgate_dead_total{group="billing",instance="a",worker="1"}': "0+1x30",
        'mqgate_dead_total{group="small",instance="a",worker="1"}': "7x30",
        'mqgate_worker_up{worker="2",instance="a"}': "0x30",
        'mqgate_worker_up{worker="1",instance="a"}': "1x30",
        'mqgate_requests_total{operation="publish",status="201",instance="a"}': "0+80x30",
        'mqgate_requests_total{operation="publish",status="503",instance="a"}': "0+20x30",
        'mqgate_requests_total{operation="receive",status="200",instance="a"}': "0+80x30",
        'mqgate_delivered_total{group="billing",instance="a"}': "0+100x30",
        'mqgate_redelivered_total{group="billing",instance="a"}': "0+50x30",
        'mqgate_alarm_channel_up{channel="ops",instance="a"}': "0x30",
    }
    expected = {
        "MqgateBacklogCount": [{"group": "billing", "severity": "warning"}],
        "MqgateBacklogAge": [{"group": "old", "severity": "warning"}],
        "MqgateDeadLetters": [{"group": "billing", "severity": "warning"}],
        "MqgateWorkerDown": [{"worker": "2", "instance": "a", "severity": "warning"}],
        "MqgateServerErrors": [{"operation": "publish", "instance": "a", "severity": "critical"}],
        "MqgateRedeliveries": [{"group": "billing", "severity": "warning"}],
        "MqgateAlarmChannelDown": [{"channel": "ops", "severity": "warning"}],
        "MqgateThrottling": [],
        "MqgateStorageFull": [],
        "MqgateMessagesExpired": [],
    }
    summaries = {rule["alert"]: rule["annotations"]["summary"] for rule in rules()}
    values = {"MqgateBacklogCount": "20000", "MqgateBacklogAge": "11m 40s", "MqgateRedeliveries": "50%"}
    tests = [
        {
            "eval_time": "10m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": labels,
                    "exp_annotations": {"summary": _filled(summaries[name], labels, values.get(name))},
                }
                for labels in found
            ],
        }
        for name, found in expected.items()
    ]
    inputs = [{"series": name, "values": value} for name, value in series.items()]
    suite = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [{"interval": "30s", "input_series": inputs, "alert_rule_test": tests}],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps(suite), "utf-8")

    assert "SUCCESS" in check("test", "rules", file)


def _filled(summary: str, labels: dict[str, str], value: str | None) -> str:
    for name, label in labels.items():
        summary = summary.replace(f"{{{{ $labels.{name} }}}}", label)
    return re.sub(r"\{\{ \$value[^}]*\}\}", value or "", summary)


def test_every_rule_has_a_severity_and_a_summary() -> None:
    """Alertmanager routes by the one and shows the other."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_panels_have_their_own_id_and_do_not_overlap() -> None:
    """Grafana loads such a file, and shows one panel above another."""
    found = panels()
    cells = [
        (x, y)
        for panel in found
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in found}) == len(found) > 20
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_dashboard_shows_every_group_and_gateway_by_default() -> None:
    """Its variables are filled from metrics that exist, and its panels use the chosen data source."""
    document = json.loads(DASHBOARD.read_text("utf-8"))

    variables = {variable["name"]: variable for variable in document["templating"]["list"]}

    assert set(variables) == {"datasource", "instance", "group"}
    for name in ("instance", "group"):
        assert variables[name]["allValue"] == ".*"
        assert named(variables[name]["query"]["query"]) <= exported()
    assert {panel["datasource"]["uid"] for panel in panels() if panel["type"] != "row"} == {"${datasource}"}
