"""A plug-in for brokers that does not start the replication service.

A broker always listens for replicas (`haListenPort`), on all interfaces: `DefaultHAService` binds a port without an
address, and no setting changes that. Brokers of a stack have no replicas. RocketMQ lets a file
`META-INF/service/org.apache.rocketmq.store.ha.HAService` name another class for the service. Ours is this one:

    public class NoReplication extends DefaultHAService {
        public void start() {}
    }

Its class file is assembled here (Java Virtual Machine Specification, chapter 4), because a stack needs no compiler.
"""

import io
import struct
import zipfile
from pathlib import Path

__all__ = ["write_plugin"]

_NAME = "mqgate/NoReplication"
_SERVICE = "org.apache.rocketmq.store.ha.HAService"
_PARENT = "org/apache/rocketmq/store/ha/DefaultHAService"
_JAVA_8 = 52
_PUBLIC, _PUBLIC_CLASS = 0x0001, 0x0021
_RETURN = b"\xb1"


def write_plugin(path: Path) -> None:
    """Write the jar unless it is there: a JVM with a class archive requires an unchanged class path."""
    jar = _jar()
    if path.is_file() and path.read_bytes() == jar:
        return
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(jar)
    fresh.replace(path)


def _jar() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as jar:
        # ZipInfo has a fixed time by default, so that the jar is always the same.
        jar.writestr(zipfile.ZipInfo(f"META-INF/service/{_SERVICE}"), _NAME.replace("/", "."))
        jar.writestr(zipfile.ZipInfo(f"{_NAME}.class"), _class_file())
    return written.getvalue()


def _class_file() -> bytes:
    constants = [
        _text(_NAME),  # 1
        _reference(7, 1),  # 2: this class
        _text(_PARENT),  # 3
        _reference(7, 3),  # 4: its parent
        _text("<init>"),  # 5
        _text("()V"),  # 6
        _reference(12, 5, 6),  # 7: name and type of a constructor
        _reference(10, 4, 7),  # 8: the constructor of the parent
        _text("Code"),  # 9
        _text("start"),  # 10
    ]
    call_parent = b"\x2a\xb7" + struct.pack(">H", 8)
    methods = [_method(5, call_parent + _RETURN), _method(10, _RETURN)]
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, _JAVA_8, len(constants) + 1)
    # This class, its parent, no interfaces, no fields; after the methods, no attributes.
    members = struct.pack(">HHHHHH", _PUBLIC_CLASS, 2, 4, 0, 0, len(methods))
    return head + b"".join(constants) + members + b"".join(methods) + struct.pack(">H", 0)


def _text(text: str) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text.encode()


def _reference(tag: int, *indices: int) -> bytes:
    return struct.pack(f">B{len(indices)}H", tag, *indices)


def _method(name: int, code: bytes) -> bytes:
    """Return a public method `void name()` with one attribute, its code."""
    attribute = struct.pack(">HHI", 1, 1, len(code)) + code + struct.pack(">HH", 0, 0)
    return struct.pack(">HHHHHI", _PUBLIC, name, 6, 1, 9, len(attribute)) + attribute
