"""The long form of the abuse suite: default settings, up to 15,000 connections.

    python tests/abuse/abuse_run.py [REPORT]

Prints the report, and writes it if a path is given. The exit code is 1 if a promise was broken.
"""

import sys
import tempfile
from pathlib import Path

import uvloop
from abuse_report import written
from attack_run import LONG, AbuseRun
from attacks import ATTACKS
from site_under_attack import Site


async def _main() -> tuple[str, bool]:
    with tempfile.TemporaryDirectory(prefix="mqgate-abuse-") as directory:
        site = Site(Path(directory), **LONG.settings)
        try:
            await site.open()
            run = AbuseRun(site, LONG)
            try:
                await run.start()
                results = []
                for attack in ATTACKS:
                    results.append(result := await run.run(attack))
                    print(f"{attack.name}: {run.broken_promises(result) or 'withstood'}", file=sys.stderr)  # noqa: T201 - a program
            finally:
                run.close()
        finally:
            site.close()
    return written(run, results), not any(run.broken_promises(result) for result in results)


if __name__ == "__main__":
    report, is_withstood = uvloop.run(_main())
    print(report)  # noqa: T201 - a program
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(report, "utf-8")
    sys.exit(not is_withstood)
