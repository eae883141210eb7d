"""`python -m distrl` is the command line."""

from __future__ import annotations

from distrl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
