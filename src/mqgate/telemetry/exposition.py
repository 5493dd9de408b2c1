"""Texts in the Prometheus format of several processes, as one text."""

from collections.abc import Iterable, Mapping

__all__ = ["merge", "worker_states"]

_HELP = b"# HELP "


def merge(texts: Iterable[bytes]) -> bytes:
    """Return the families of all texts, each once with the samples of all. Samples must differ by a label."""
    families: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    for text in texts:
        comments: list[bytes] = []
        samples: list[bytes] = []
        is_known = False
        for line in text.splitlines(keepends=True):
            if line.startswith(_HELP):
                comments, samples = families.setdefault(line[len(_HELP) :].split(b" ", 1)[0], ([], []))
                is_known = bool(comments)
            if line.startswith(b"#"):
                if not is_known:
                    comments.append(line)
            else:
                samples.append(line)
    return b"".join(line for comments, samples in families.values() for line in (*comments, *samples))


def worker_states(states: Mapping[str, bool]) -> bytes:
    """Return a family with 1 for each worker whose metrics are contained, and 0 for one that did not respond."""
    lines = [
        "# HELP mqgate_worker_up 1 if the scrape contains the metrics of a worker",
        "# TYPE mqgate_worker_up gauge",
    ]
    lines += [f'mqgate_worker_up{{worker="{worker}"}} {float(is_up)}' for worker, is_up in sorted(states.items())]
    return ("\n".join(lines) + "\n").encode()
