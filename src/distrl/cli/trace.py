"""`distrl trace`: the timeline of a run, for chrome://tracing or ui.perfetto.dev."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, help="a run folder; without it, the newest in --root")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="folder that holds the runs (default: runs)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: trace.json in the run folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl import open_run
    from distrl.cli.main import print_json
    from distrl.dashboard.trace import trace_of
    from distrl.experience.durable import replace, storage_errors
    from distrl.runtime.run_sizes import newest_run

    place = args.run or newest_run(args.root)
    out = args.out or place / "trace.json"
    content = trace_of(open_run(place))
    with storage_errors(out.parent, flag="--out"):
        replace(out, content)
    if args.json:
        print_json({"trace": str(out), "size_bytes": len(content)})
    else:
        print(f"trace: {out}; open it in chrome://tracing or ui.perfetto.dev")
    return 0
