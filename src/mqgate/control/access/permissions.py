"""The permission table: what each kind of caller may do.

Every operation of the API has one row, except those that serve callers without credentials (`/livez`, `/readyz`,
signing in, and `/mq`, which admits networks). The route table refuses an operation without a row.

    all      every resource
    own      key of a producer or group: that entry; member: entries of the member's teams
    limits   every resource, but only its rate limit and in-flight limit
    -        denied
"""

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["ACCOUNT_ROLES", "KEY_ROLES", "KINDS", "PERMISSIONS", "Grant"]


class Grant(StrEnum):
    """The extent of a permission."""

    ALL = "all"
    OWN = "own"
    LIMITS = "limits"


# The roles of accounts, and the roles of API keys. The other keys belong to one producer or one group.
ACCOUNT_ROLES = ("viewer", "member", "operator", "admin")
KEY_ROLES = ("metrics", "viewer", "reader", "operator", "admin")

_TABLE = """
operation             metrics viewer reader member operator admin producer group
publish               -       -      -      -      -        all   own      -
receive               -       -      -      -      -        all   -        own
ack                   -       -      -      -      -        all   -        own
nack                  -       -      -      -      -        all   -        own
extend                -       -      -      -      -        all   -        own
lag                   -       all    all    all    all      all   -        own
clients               -       all    all    all    all      all   -        own
seek                  -       -      -      -      all      all   -        -
pause                 -       -      -      -      all      all   -        -
resume                -       -      -      -      all      all   -        -
listActs              -       all    all    all    all      all   -        -
listDeadLetters       -       all    all    all    all      all   -        own
getDeadLetter         -       -      all    own    all      all   -        own
redriveDeadLetters    -       -      -      own    all      all   -        own
purgeDeadLetters      -       -      -      -      all      all   -        -
replayToTopic         -       -      -      -      all      all   -        -
replayToGroup         -       -      -      -      all      all   -        -
listScheduled         -       all    all    all    all      all   own      -
getScheduled          -       -      all    own    all      all   own      -
cancelScheduled       -       -      -      own    all      all   own      -
retimeScheduled       -       -      -      own    all      all   own      -
putTopic              -       -      -      -      -        all   -        -
getTopic              -       all    all    all    all      all   -        -
deleteTopic           -       -      -      -      -        all   -        -
listTopics            -       all    all    all    all      all   -        -
putProducer           -       -      -      -      limits   all   -        -
getProducer           -       all    all    all    all      all   -        -
deleteProducer        -       -      -      -      -        all   -        -
listProducers         -       all    all    all    all      all   -        -
putGroup              -       -      -      -      -        all   -        -
getGroup              -       all    all    all    all      all   -        own
deleteGroup           -       -      -      -      -        all   -        -
listGroups            -       all    all    all    all      all   -        -
patchGroup            -       -      -      -      limits   all   -        -
createKey             -       -      -      -      -        all   -        -
listKeys              -       all    all    all    all      all   -        -
deleteKey             -       -      -      -      -        all   -        -
findMessages          -       -      all    own    all      all   -        -
getMessage            -       -      all    own    all      all   -        -
readQueue             -       -      all    own    all      all   -        -
listQueues            -       all    all    all    all      all   -        -
trafficStats          -       all    all    all    all      all   -        -
latencyStats          -       all    all    all    all      all   -        -
redeliveryStats       -       all    all    all    all      all   -        -
lagStats              -       all    all    all    all      all   -        -
reconciliationStats   -       all    all    all    all      all   -        -
findingsStats         -       all    all    all    all      all   -        -
stuckStats            -       all    all    all    all      all   -        -
pipelinesStats        -       all    all    all    all      all   -        -
listAlarms            -       all    all    all    all      all   -        -
alarmHistory          -       all    all    all    all      all   -        -
alarmInbox            -       all    all    all    all      all   -        -
listAlarmRules        -       all    all    all    all      all   -        -
putAlarmRule          -       -      -      -      all      all   -        -
putSubjectAlarmRule   -       -      -      -      all      all   -        -
resetAlarmRule        -       -      -      -      all      all   -        -
resetSubjectAlarmRule -       -      -      -      all      all   -        -
listSilences          -       all    all    all    all      all   -        -
createSilence         -       -      -      -      all      all   -        -
deleteSilence         -       -      -      -      all      all   -        -
listAlarmChannels     -       all    all    all    all      all   -        -
putAlarmChannel       -       -      -      -      -        all   -        -
deleteAlarmChannel    -       -      -      -      -        all   -        -
testAlarmChannel      -       -      -      -      all      all   -        -
createApplication     -       -      -      own    all      all   -        -
listApplications      -       all    all    all    all      all   -        -
getApplication        -       all    all    all    all      all   -        -
approveApplication    -       -      -      -      all      all   -        -
declineApplication    -       -      -      -      all      all   -        -
retryApplication      -       -      -      -      all      all   -        -
withdrawApplication   -       -      -      own    all      all   -        -
takeApplicationKey    -       -      -      own    all      all   -        -
me                    all     all    all    all    all      all   all      all
listSessions          all     all    all    all    all      all   all      all
signOut               all     all    all    all    all      all   all      all
signOutEverywhere     all     all    all    all    all      all   all      all
changePassword        all     all    all    all    all      all   all      all
putAccount            -       -      -      -      -        all   -        -
getAccount            -       all    all    all    all      all   -        -
listAccounts          -       all    all    all    all      all   -        -
deleteAccount         -       -      -      -      -        all   -        -
endSessions           -       -      -      -      -        all   -        -
putTeam               -       -      -      -      -        all   -        -
getTeam               -       all    all    all    all      all   -        -
listTeams             -       all    all    all    all      all   -        -
deleteTeam            -       -      -      -      -        all   -        -
addMember             -       -      -      -      -        all   -        -
removeMember          -       -      -      -      -        all   -        -
metrics               all     all    all    all    all      all   -        -
info                  all     all    all    all    all      all   all      all
openapi               all     all    all    all    all      all   all      all
docs                  all     all    all    all    all      all   all      all
"""


def _parse(table: str) -> tuple[tuple[str, ...], Mapping[str, Mapping[str, Grant]]]:
    head, *rows = (line.split() for line in table.strip().splitlines())
    kinds = tuple(head[1:])
    return kinds, {
        operation: {kind: Grant(cell) for kind, cell in zip(kinds, cells, strict=True) if cell != "-"}
        for operation, *cells in rows
    }


# All kinds of callers, and the grants of each operation by kind.
KINDS, PERMISSIONS = _parse(_TABLE)
