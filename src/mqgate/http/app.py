"""The ASGI application: Starlette's router over the route table, with a direct lookup for the most frequent paths."""

from collections.abc import Awaitable, Mapping, Sequence

from starlette.routing import Route, Router

from mqgate.http.middleware import AsgiReceive, AsgiScope, AsgiSend, RequestMiddleware, Resource
from mqgate.http.operation import Operation

# By the parts of a path before and after its one parameter: the name of the parameter, and the resource.
_Shortcuts = Mapping[tuple[str, str], tuple[str, Resource]]


class App:
    """Finds paths such as /v1/topics/{topic}/messages by lookup. The router would try its patterns one by one."""

    def __init__(self, router: Router, shortcuts: _Shortcuts) -> None:
        self._router = router
        self.routes = router.routes
        self._shortcuts = shortcuts

    def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> Awaitable[None]:
        if scope["type"] == "http" and not scope.get("root_path"):
            before, _, last = scope["path"].rpartition("/")
            first, _, name = before.rpartition("/")
            found = self._shortcuts.get((first, last))
            if found is not None and name:
                parameter, resource = found
                scope["path_params"] = {parameter: name}
                return resource(scope, receive, send)
        return self._router(scope, receive, send)


def build(middleware: RequestMiddleware, operations: Sequence[Operation]) -> App:
    """Return an application that serves the operations. The first operation whose path matches is called."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        for method in operation.method.split("|"):
            by_path.setdefault(operation.path, {})[method] = operation
    resources = {path: middleware.resource(methods) for path, methods in by_path.items()}
    routes = [Route(path, resource) for path, resource in resources.items()]
    return App(Router(routes, redirect_slashes=False, default=middleware.not_found), _shortcuts(resources))


def _shortcuts(resources: Mapping[str, Resource]) -> _Shortcuts:
    shortcuts: dict[tuple[str, str], tuple[str, Resource]] = {}
    earlier: list[str] = []
    for path, resource in resources.items():
        before, _, last = path.rpartition("/")
        first, _, name = before.rpartition("/")
        has_one_parameter = path.count("{") == 1 and name[:1] == "{" and name[-1:] == "}" and ":" not in name
        if has_one_parameter and not any(_may_overlap(path, other) for other in earlier):
            shortcuts[first, last] = name[1:-1], resource
        earlier.append(path)
    return shortcuts


def _may_overlap(path: str, other: str) -> bool:
    """Return whether both patterns may match the same path. Then their order in the table decides."""
    if ":path}" in path + other:
        return True
    parts, other_parts = path.split("/"), other.split("/")
    pairs = zip(parts, other_parts, strict=False)
    return len(parts) == len(other_parts) and all(a == b or "{" in a or "{" in b for a, b in pairs)
