"""`python -m reports.pooled`: the claims of the arena, tested on two whole runs of it together."""

import argparse
import sys
import tarfile
from lzma import LZMAError
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.artifacts.files import BadFile, BadInput, write_text
from rapid.config.params import load_config_files
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
        params = load_config_files(options.configfile)
        with TemporaryDirectory() as root:
            _extract_archive(options.raw, root)
            data = ReportData.read(params, root, list_arena_runs(params))
            tables = build_tables(read_field_analyses(data, options.earlier))
        write_text(options.output, text.render(tables, params.name) + "\n")
    except (BadInput, OSError) as error:
        print(f"reports.pooled: {error}", file=sys.stderr)
        return 1
    return 0


def _extract_archive(file: Path, folder: str) -> None:
    try:
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, LZMAError, EOFError):
        raise BadFile(f"{file}: is damaged, or is not a tar archive") from None


if __name__ == "__main__":
    sys.exit(main())
