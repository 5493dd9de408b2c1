"""RocketMQ, Redis and PostgreSQL on loopback, in one directory, for evaluation, tests and benchmarks.

Every server is a process that outlives the process that started it. `stack.json` in the directory lists the servers, so
any process can open the stack. Only processes that match their recorded command are stopped.
"""

from mqgate.stack.broker_spec import BrokerSpec
from mqgate.stack.errors import PartFailed, PortTaken, StackError, StackUnavailable
from mqgate.stack.jars import ROCKETMQ_VERSION, jars
from mqgate.stack.java import find_java
from mqgate.stack.part import Part
from mqgate.stack.plan import Extra
from mqgate.stack.stack import Stack

__all__ = [
    "ROCKETMQ_VERSION",
    "BrokerSpec",
    "Extra",
    "Part",
    "PartFailed",
    "PortTaken",
    "Stack",
    "StackError",
    "StackUnavailable",
    "find_java",
    "jars",
]
