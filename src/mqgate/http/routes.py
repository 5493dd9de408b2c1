"""The route table: every method and path of the gateway, and its handler.

The first path that matches is served, so the most frequent routes come first. Types, errors and permissions of an
operation are declared at its handler (see `describe`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mqgate.core.receipt import MAX_RECEIPT_LENGTH
from mqgate.http.compat.mq.dialect import ANY, POST, READ, MqDialect, not_found
from mqgate.http.documentation import DocumentationApi
from mqgate.http.native.access import AccessApi
from mqgate.http.native.accounts import AccountsApi
from mqgate.http.native.alarm_channels import AlarmChannelsApi
from mqgate.http.native.alarms import AlarmsApi
from mqgate.http.native.applications import ApplicationsApi
from mqgate.http.native.dead_letters import DeadLetterApi
from mqgate.http.native.health import HealthApi
from mqgate.http.native.messages import MessagesApi
from mqgate.http.native.operate import OperateApi
from mqgate.http.native.publish import PublishApi
from mqgate.http.native.queues import QueuesApi
from mqgate.http.native.receive import ReceiveApi
from mqgate.http.native.registry import RegistryApi
from mqgate.http.native.replay import ReplayApi
from mqgate.http.native.scheduled import ScheduledApi
from mqgate.http.native.stats import StatsApi
from mqgate.http.operation import SMALL_BODY, Operation, route
from mqgate.settings import HttpSettings

__all__ = ["Apis", "route_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apis:
    """The objects whose methods are the handlers."""

    publish: PublishApi
    receive: ReceiveApi
    mq: MqDialect
    operate: OperateApi
    dead_letters: DeadLetterApi
    replay: ReplayApi
    scheduled: ScheduledApi
    registry: RegistryApi
    messages: MessagesApi
    queues: QueuesApi
    alarms: AlarmsApi
    alarm_channels: AlarmChannelsApi
    stats: StatsApi
    health: HealthApi
    access: AccessApi
    accounts: AccountsApi
    applications: ApplicationsApi


def route_table(apis: Apis, settings: HttpSettings) -> Sequence[Operation]:
    """Return every operation of the gateway."""
    mq = apis.mq
    messages_size = settings.max_request_bytes
    receipts_size = settings.max_batch * MAX_RECEIPT_LENGTH + SMALL_BODY
    documentation = DocumentationApi(lambda: table)
    table = (
        route("POST", "/v1/topics/{topic}/messages", apis.publish.publish, max_body_bytes=messages_size),
        route("POST", "/v1/groups/{group}/receive", apis.receive.receive, max_body_bytes=receipts_size),
        route("POST", "/v1/groups/{group}/ack", apis.receive.ack, max_body_bytes=receipts_size),
        route("POST", "/v1/groups/{group}/nack", apis.receive.nack, max_body_bytes=receipts_size),
        route("POST", "/v1/groups/{group}/extend", apis.receive.extend, max_body_bytes=receipts_size),
        # A form may encode each byte of the message as three characters.
        mq.route("mqProduce", POST, "/mq/produce", mq.produce.produce, 3 * settings.max_message_bytes + SMALL_BODY),
        mq.route("mqMessage", ANY, "/mq/message", mq.consume.fetch),
        mq.route("mqAck", ANY, "/mq/ack", mq.consume.ack),
        mq.route("mqUnlock", ANY, "/mq/unlock", mq.consume.unlock),
        mq.route("mqClusteringOffset", READ, "/mq/clustering/queue/offset", mq.offsets.queue_offsets),
        mq.route("mqBroadcastOffset", READ, "/mq/broadcast/queue/offset", mq.offsets.queue_offsets),
        mq.route("mqConfig", READ, "/mq/config/{consumer}", mq.offsets.config),
        mq.route("mqConsumerConfig", POST, "/mq/consumer/config", mq.config.configure),
        # Both paths require the MU header. The original requires it for the first one only.
        mq.route("mqConsumerUnregister", POST, "/mq/consumer/unregister", mq.config.unregister),
        mq.route("mqUnregister", POST, "/mq/unregister", mq.config.unregister),
        mq.route("mqNotThere", ANY, "/mq/{rest:path}", not_found),
        route("GET", "/v1/groups/{group}/lag", apis.operate.lag),
        route("GET", "/v1/groups/{group}/clients", apis.operate.clients),
        route("POST", "/v1/groups/{group}/seek", apis.operate.seek),
        route("POST", "/v1/groups/{group}/pause", apis.operate.pause),
        route("POST", "/v1/groups/{group}/resume", apis.operate.resume),
        route("GET", "/v1/audit", apis.operate.audit),
        route("GET", "/v1/groups/{group}/dead-letters", apis.dead_letters.list),
        route("POST", "/v1/groups/{group}/dead-letters/redrive", apis.dead_letters.redrive),
        route("POST", "/v1/groups/{group}/dead-letters/purge", apis.dead_letters.purge),
        route("GET", "/v1/groups/{group}/dead-letters/{id}", apis.dead_letters.get),
        route("POST", "/v1/topics/{topic}/replay", apis.replay.to_topic, max_body_bytes=messages_size),
        route("POST", "/v1/groups/{group}/replay", apis.replay.to_group, max_body_bytes=messages_size),
        route("GET", "/v1/scheduled", apis.scheduled.list),
        route("GET", "/v1/scheduled/{id}", apis.scheduled.get),
        route("DELETE", "/v1/scheduled/{id}", apis.scheduled.cancel),
        route("PATCH", "/v1/scheduled/{id}", apis.scheduled.retime),
        route("PUT", "/v1/topics/{topic}", apis.registry.put_topic),
        route("GET", "/v1/topics/{topic}", apis.registry.get_topic),
        route("DELETE", "/v1/topics/{topic}", apis.registry.delete_topic),
        route("GET", "/v1/topics", apis.registry.list_topics),
        route("PUT", "/v1/producers/{producer}", apis.registry.put_producer),
        route("GET", "/v1/producers/{producer}", apis.registry.get_producer),
        route("DELETE", "/v1/producers/{producer}", apis.registry.delete_producer),
        route("GET", "/v1/producers", apis.registry.list_producers),
        route("PUT", "/v1/groups/{group}", apis.registry.put_group),
        route("GET", "/v1/groups/{group}", apis.registry.get_group),
        route("DELETE", "/v1/groups/{group}", apis.registry.delete_group),
        route("GET", "/v1/groups", apis.registry.list_groups),
        route("PATCH", "/v1/groups/{group}", apis.registry.patch_group),
        route("POST", "/v1/keys", apis.registry.create_key),
        route("GET", "/v1/keys", apis.registry.list_keys),
        route("DELETE", "/v1/keys/{key}", apis.registry.delete_key),
        route("POST", "/v1/applications", apis.applications.create),
        route("GET", "/v1/applications", apis.applications.list),
        route("GET", "/v1/applications/{id}", apis.applications.get),
        route("POST", "/v1/applications/{id}/approve", apis.applications.approve),
        route("POST", "/v1/applications/{id}/decline", apis.applications.decline),
        route("POST", "/v1/applications/{id}/withdraw", apis.applications.withdraw),
        route("POST", "/v1/applications/{id}/retry", apis.applications.retry),
        route("POST", "/v1/applications/{id}/key", apis.applications.take_key),
        route("POST", "/v1/sessions", apis.access.sign_in),
        route("GET", "/v1/sessions", apis.access.sessions),
        route("DELETE", "/v1/sessions", apis.access.sign_out_everywhere),
        route("DELETE", "/v1/sessions/current", apis.access.sign_out),
        route("GET", "/v1/me", apis.access.me),
        route("PUT", "/v1/me/password", apis.access.change_password),
        route("PUT", "/v1/accounts/{account}", apis.accounts.put_account),
        route("GET", "/v1/accounts/{account}", apis.accounts.get_account),
        route("DELETE", "/v1/accounts/{account}", apis.accounts.delete_account),
        route("GET", "/v1/accounts", apis.accounts.list_accounts),
        route("DELETE", "/v1/accounts/{account}/sessions", apis.accounts.end_sessions),
        route("PUT", "/v1/teams/{team}", apis.accounts.put_team),
        route("GET", "/v1/teams/{team}", apis.accounts.get_team),
        route("DELETE", "/v1/teams/{team}", apis.accounts.delete_team),
        route("GET", "/v1/teams", apis.accounts.list_teams),
        route("PUT", "/v1/teams/{team}/members/{account}", apis.accounts.add_member),
        route("DELETE", "/v1/teams/{team}/members/{account}", apis.accounts.remove_member),
        route("GET", "/v1/topics/{topic}/messages", apis.messages.find),
        route("GET", "/v1/topics/{topic}/messages/{id}", apis.messages.get),
        route("GET", "/v1/topics/{topic}/queues/{queue}/messages", apis.messages.read),
        route("GET", "/v1/topics/{topic}/queues", apis.queues.list),
        route("GET", "/v1/stats/traffic", apis.stats.traffic),
        route("GET", "/v1/stats/latency", apis.stats.latency),
        route("GET", "/v1/stats/redelivery", apis.stats.redelivery),
        route("GET", "/v1/stats/lag", apis.stats.lag),
        route("GET", "/v1/stats/reconciliation", apis.stats.reconciliation),
        route("GET", "/v1/stats/findings", apis.stats.findings),
        route("GET", "/v1/stats/stuck", apis.stats.stuck),
        route("GET", "/v1/stats/pipelines", apis.stats.pipelines),
        route("GET", "/v1/alarms", apis.alarms.list),
        route("GET", "/v1/alarms/history", apis.alarms.history),
        route("GET", "/v1/alarms/rules", apis.alarms.rules),
        route("PUT", "/v1/alarms/rules/{rule}", apis.alarms.put_rule),
        route("DELETE", "/v1/alarms/rules/{rule}", apis.alarms.reset_rule),
        route("PUT", "/v1/alarms/rules/{rule}/subjects/{subject}", apis.alarms.put_subject_rule),
        route("DELETE", "/v1/alarms/rules/{rule}/subjects/{subject}", apis.alarms.reset_subject_rule),
        route("GET", "/v1/alarms/silences", apis.alarms.silences),
        route("POST", "/v1/alarms/silences", apis.alarms.create_silence),
        route("DELETE", "/v1/alarms/silences/{silence}", apis.alarms.delete_silence),
        route("GET", "/v1/alarms/channels", apis.alarm_channels.list),
        route("PUT", "/v1/alarms/channels/{channel}", apis.alarm_channels.put),
        route("DELETE", "/v1/alarms/channels/{channel}", apis.alarm_channels.delete),
        route("POST", "/v1/alarms/channels/{channel}/test", apis.alarm_channels.test),
        route("GET", "/v1/alarms/inbox", apis.alarm_channels.inbox),
        route("GET", "/livez", apis.health.livez),
        route("GET", "/readyz", apis.health.readyz),
        route("GET", "/metrics", apis.health.metrics),
        route("GET", "/v1/info", apis.health.info),
        route("GET", "/openapi.json", documentation.openapi),
        route("GET", "/docs", documentation.docs),
    )
    return table
