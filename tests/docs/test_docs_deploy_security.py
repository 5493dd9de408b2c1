"""The containers and the balancer of `deploy/` have no more rights, and trust no more, than they need."""

import re
import tomllib
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml
from doc_pages import ROOT

from mqgate.settings import HttpSettings

DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
# Gives the volumes to the user of RocketMQ and ends.
CHOWNER = "volume-owner"
LONGEST_WAIT = 60
DIGEST = r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return compose.yaml. Its passwords are not filled in."""
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return loaded


@pytest.fixture(params=["haproxy.cfg", "haproxy-tls.cfg"])
def balancer(request: pytest.FixtureRequest) -> str:
    """Return the settings of the balancer, without and with TLS."""
    return (DEPLOY / request.param).read_text("utf-8")


def test_no_container_can_change_its_files_or_gain_rights(compose: dict[str, Any]) -> None:
    """An intruder in one service must not reach the machine."""
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.keys() & {"privileged", "pid", "ipc", "devices"}, name


def test_no_service_runs_as_root(compose: dict[str, Any]) -> None:
    """For the kernel, root in a container is root of the machine."""
    for name, service in compose["services"].items():
        user, group = map(int, service["user"].split(":"))
        if name == CHOWNER:
            continue
        assert user > 0, name
        assert group > 0, name
        assert "cap_add" not in service, name


def test_the_service_that_changes_owners_can_do_nothing_else(compose: dict[str, Any]) -> None:
    """It is root, so it has one capability, no network, no restart, and only the volumes of RocketMQ."""
    service = compose["services"][CHOWNER]
    owner = service["entrypoint"][2]

    assert service["cap_add"] == ["CHOWN"]
    assert service["network_mode"] == "none"
    assert service["restart"] == "no"
    for name in ("nameserver", "broker-a", "broker-b"):
        assert compose["services"][name]["user"] == owner
        assert compose["services"][name]["depends_on"][CHOWNER] == {"condition": "service_completed_successfully"}
        assert f"{name}:/var/lib/rocketmq" in compose["services"][name]["volumes"]
        assert f"{name}:/volumes/{name}" in service["volumes"]


def test_only_the_balancer_is_published_and_stores_cannot_be_reached_from_it(compose: dict[str, Any]) -> None:
    """A compromised balancer must not reach Redis or PostgreSQL, which need no outgoing connections."""
    services = compose["services"]

    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    assert list(services["balancer"]["networks"]) == ["front"]
    assert compose["networks"]["back"] == {"internal": True}
    for name in ("redis", "postgres", "nameserver", "broker-a", "broker-b"):
        assert services[name]["networks"] == ["back"]


def test_redis_asks_for_a_password_that_no_argument_shows(compose: dict[str, Any]) -> None:
    """Leases decide which consumer gets a message, and every user of the machine can list arguments."""
    redis = compose["services"]["redis"]
    gateway = compose["services"]["gateway-1"]
    *_, script = redis["command"]

    assert 'echo "requirepass $$REDISCLI_AUTH" > /tmp/redis.conf' in script
    assert "exec redis-server /tmp/redis.conf " in script
    assert "REDIS_PASSWORD" not in str(redis["command"]) + str(redis["healthcheck"])
    assert redis["environment"] == {"REDISCLI_AUTH": "${REDIS_PASSWORD:?}"}
    assert gateway["environment"]["MQGATE_REDIS_URL"] == "redis://:${REDIS_PASSWORD:?}@redis:6379/0"


def test_images_are_named_by_digest_or_the_page_says_how_to_find_it(compose: dict[str, Any]) -> None:
    """A tag can be moved to another image at any time."""
    images = {service["image"] for service in compose["services"].values()} - {"mqgate"}
    images |= set(re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE))
    page = PAGE.read_text("utf-8")

    unpinned = {image for image in images if not re.fullmatch(DIGEST, image)}

    assert unpinned == {"apache/rocketmq:5.3.3"}
    assert "docker buildx imagetools inspect apache/rocketmq:5.3.3" in page


def test_gateways_trust_the_address_of_the_balancer_only(compose: dict[str, Any]) -> None:
    """A client that could choose its address would evade limits and allow-lists."""
    settings = tomllib.loads((DEPLOY / "mqgate.toml").read_text("utf-8"))
    address = compose["services"]["balancer"]["networks"]["front"]["ipv4_address"]
    (pool,) = compose["networks"]["front"]["ipam"]["config"]

    assert settings["http"]["trusted_proxies"] == [f"{address}/32"]
    assert ip_address(address) in ip_network(pool["subnet"])
    # Docker gives an address of this range to any other container.
    assert ip_address(address) not in ip_network(pool["ip_range"])


def test_the_balancer_replaces_forwarded_headers_of_clients(balancer: str) -> None:
    """Gateways trust the balancer, so it must not forward values that clients chose."""
    (frontend,) = re.findall(r"^frontend mqgate\n((?:    .*\n)+)", balancer, re.MULTILINE)
    scheme = "https" if " ssl " in frontend else "http"

    assert "    http-request del-header X-Forwarded-For\n" in frontend
    assert f"    http-request set-header X-Forwarded-Proto {scheme}\n" in frontend
    assert "    option forwardfor\n" in frontend


def test_the_time_outs_of_the_balancer_agree_with_those_of_the_gateway(balancer: str) -> None:
    """A shorter one would cut long polls and slow clients, and a longer one would protect nothing."""
    timeouts = {name: int(seconds) for name, seconds in re.findall(r"timeout ([\w-]+) (\d+)s", balancer)}
    http = HttpSettings()

    assert timeouts["http-request"] == http.header_timeout.total_seconds()
    assert timeouts["http-keep-alive"] == http.idle_timeout.total_seconds()
    assert timeouts["client"] > max(http.body_timeout, http.stall_timeout).total_seconds()
    assert timeouts["server"] > LONGEST_WAIT
    assert timeouts["queue"] < timeouts["http-request"]
    (places,) = re.findall(r"default-server .* maxconn (\d+)", balancer)
    assert int(places) < http.max_connections
    assert "    http-reuse safe\n" in balancer
    assert "    retry-on conn-failure\n" in balancer


def test_the_balancer_with_tls_differs_in_its_frontend_only() -> None:
    """Time-outs and retries must be the same in both."""
    plain, tls = ((DEPLOY / name).read_text("utf-8") for name in ("haproxy.cfg", "haproxy-tls.cfg"))
    for section in ("defaults", "resolvers", "backend"):
        pattern = rf"^{section}.*\n(?:    .*\n)+"

        assert re.findall(pattern, plain, re.MULTILINE) == re.findall(pattern, tls, re.MULTILINE)


def test_the_balancer_with_tls_requires_a_current_protocol() -> None:
    """Plain HTTP is redirected, because a key that is sent in clear text can be read."""
    text = (DEPLOY / "haproxy-tls.cfg").read_text("utf-8")
    (ciphers,) = re.findall(r"ssl-default-bind-ciphers (\S+)", text)
    overlay = yaml.safe_load((DEPLOY / "compose.tls.yaml").read_text("utf-8"))["services"]["balancer"]

    assert "ssl-min-ver TLSv1.2" in text
    assert all(re.fullmatch(r"ECDHE-(ECDSA|RSA)-\S*(GCM|POLY1305)\S*", cipher) for cipher in ciphers.split(":"))
    assert "    http-request redirect code 308 prefix https://" in text
    assert "Strict-Transport-Security max-age=63072000" in text
    bound = set(re.findall(r"bind :(\d+)", text))
    assert {port.rpartition(":")[2] for port in overlay["ports"]} == bound
    assert "./haproxy-tls.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro" in overlay["volumes"]


def test_the_memory_limit_of_the_unit_exceeds_that_of_the_gateway() -> None:
    """The gateway must refuse requests before the kernel kills a worker."""
    unit = (DEPLOY / "mqgate.service").read_text("utf-8")
    (gigabytes,) = re.findall(r"^MemoryMax=(\d+)G$", unit, re.MULTILINE)
    workers = tomllib.loads((DEPLOY / "mqgate.toml").read_text("utf-8"))["http"]["workers"]
    http = HttpSettings()

    assert int(gigabytes) * 2**30 >= workers * 2 * (http.max_bytes_in_flight + http.max_unread_bytes)
    assert "OOMPolicy=continue\n" in unit
    assert "SystemCallErrorNumber=EPERM\n" in unit
