"""`distrl report`: `report.html` in the run folder, one file about a run that opens anywhere."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, help="a run folder; without it, the newest in --root")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="folder that holds the runs (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.dashboard.report import write_report
    from distrl.runtime.run_sizes import newest_run

    written = write_report(args.run or newest_run(args.root))
    if args.json:
        print_json({"report": str(written), "size_bytes": written.stat().st_size})
    else:
        print(f"report: {written}")
    return 0
