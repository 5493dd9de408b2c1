"""Creates the RocketMQ client from the settings."""

import ssl
from collections.abc import Callable

from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.remoting.signature import Credentials
from mqgate.settings import RocketMQSettings, SettingsInvalid

__all__ = ["client_of", "wire_names"]


def client_of(settings: RocketMQSettings) -> RocketMQClient:
    """Return a client for the configured cluster. Raise SettingsInvalid if a TLS file cannot be loaded."""
    credentials = None
    if settings.access_key:
        credentials = Credentials(
            access_key=settings.access_key,
            secret_key=settings.secret_key,
            security_token=settings.security_token,
        )
    return RocketMQClient(
        settings.name_servers,
        credentials=credentials,
        tls=_tls(settings) if settings.tls else None,
        deadline=settings.timeout.total_seconds(),
    )


def _tls(settings: RocketMQSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except OSError as error:
        raise SettingsInvalid([f"[rocketmq] tls_ca, tls_cert, tls_key: {error}"]) from error
    context.check_hostname = settings.tls_check_host
    return context


def wire_names(settings: RocketMQSettings) -> Callable[[str], str]:
    """Return the function that adds the namespace to a name, in the format of the Java clients."""
    prefix = f"{settings.namespace}%" if settings.namespace else ""
    return lambda name: f"{prefix}{name}"
