"""`distrl bench NAME`: run one measurement, print it, and keep it where `--out` says."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from distrl.bench.base import QUICK, BenchOptions, check_name, find, names, provenance_of, results_file, write_results
from distrl.cli.main import console, print_json, whole_number


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="a shorter measurement with wider error")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument(
        "--seeds",
        type=whole_number("--seeds", 0, 1_000, 3),
        default=0,
        metavar="N",
        help="repetitions; 0, as without it: the benchmark's own number",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the results as FOLDER/NAME.json")


def run(args: argparse.Namespace) -> int:
    """Measure and report."""
    check_name(args.name)
    # Before anything is loaded and measured, so that nothing long is lost to a wrong folder.
    file = results_file(args.out, args.name, quick=args.quick) if args.out else None
    options = BenchOptions(quick=args.quick, seeds=args.seeds, out=args.out)
    result = find(args.name).run(options)
    _print_table(args.name, result)
    if file is not None:
        write_results(result, provenance_of(args.name, _command(args), options, result), file)
        print(f"kept in {file}")
    if args.json:
        print_json(result)
    return 0


def _command(args: argparse.Namespace) -> str:
    """What to type to measure the same again."""
    parts = ["distrl bench", args.name, QUICK if args.quick else "", f"--seeds {args.seeds}" if args.seeds else ""]
    return " ".join(part for part in parts if part)


def _print_table(name: str, result: msgspec.Struct) -> None:
    from rich.table import Table

    table = Table(name, "", box=None, pad_edge=False)
    for key, value in msgspec.to_builtins(result).items():
        table.add_row(key, _plain(value))
    console().print(table)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value) if isinstance(value, str | int) else msgspec.json.encode(value).decode()
