"""`python -m reports.pooled`: the claims of the arena, tested on two whole runs of it together."""

import argparse
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.artifacts.files import BadInput, write_text
from rapid.config.params import load_files
from rapid.config.specs import list_arena_runs
from reports.analyses import read_field_analyses
from reports.render import text
from reports.report_data import ReportData
from reports.tables.pooled import build_tables


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m reports.pooled", description=__doc__)
    add = parser.add_argument
    add("--configfile", nargs="+", required=True, metavar="FILE", help="parameters of the arena")
    help = "archive of the latest run, which `make arena-record` writes"
    add("--raw", type=Path, required=True, help=help)
    add("--earlier", type=Path, required=True, help="results.csv of the earlier run")
    add("--output", type=Path, required=True, help="where to write the tables as text")
    options = parser.parse_args(arguments)
    try:
        params = load_files(*options.configfile)
        with TemporaryDirectory() as root:
            with tarfile.open(options.raw) as archive:
                archive.extractall(root, filter="data")
            data = ReportData.read(params, root, list_arena_runs(params))
            tables = build_tables(read_field_analyses(data, options.earlier))
        write_text(options.output, text.render(tables, params.name) + "\n")
    except (BadInput, OSError) as error:
        print(f"reports.pooled: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
