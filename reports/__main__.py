"""`python -m reports`: make tables.tex, report.html and figures from the runs that exist."""

import argparse
import sys
from pathlib import Path

from rapid.arguments import Parser
from rapid.artifacts.code import Spec
from rapid.artifacts.evaluations import CURVE
from rapid.artifacts.files import BadInput, write_text
from rapid.artifacts.layout import ARENA, REPORT, STUDIES
from rapid.artifacts.manifests import hash_files, verify_output, write_manifest
from rapid.artifacts.runs import TOKEN_WEIGHTS
from rapid.config.jobs import LIST_RUNS
from rapid.config.params import BadParams, load_files
from rapid.config.sources import read
from rapid.config.specs import BASE, ReportSpec, build_report_spec
from rapid.errors.shortages import describe_shortage
from rapid.processes.lifetimes import end_with_reader, end_with_workflow
from reports import contents, imported
from reports.contents import Content
from reports.manifests import (
    find_other_parameters,
    find_parameters_that_differ_between_seeds,
)
from reports.outcomes import RESULTS_FILE, build_record
from reports.paper_style import PaperStyle
from reports.render import latex, text
from reports.report_data import ReportData

OK, BAD_RUN, BAD_USE = 0, 1, 2  # exit statuses
# Kind of report -> the name of its job, the files that it reads in the folder of each training run,
# and those in the folder of each evaluation.
KINDS = {
    "report": (
        REPORT,
        ["summary.json", "steps.jsonl", TOKEN_WEIGHTS],
        ["evaluation.json"],
    ),
    "studies": (STUDIES, ["summary.json"], ["evaluation.json", CURVE]),
    "arena": (ARENA, ["summary.json"], ["evaluation.json", CURVE]),
}
# Options that write files, with the names that the pipeline gives them in the report's folder.
PIPELINE_FILES = {"output": "tables.tex", "html": "report.html", "figures": "figures"}
# Options of which the command needs at least one.
OUTPUTS = (*PIPELINE_FILES, "text")
APPENDIX_FILE = "appendix.tex"


class PartialReportSpec(ReportSpec):
    """The spec of a report that has not all files of the pipeline's report.

    The pipeline's report has another spec, so it does not count as up to date after a partial
    report was written into its folder, where the other files may be from an earlier report.
    """

    only: list[str]  # the paths that the command was given


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Missing runs are not an error: cells have a dash, and footnotes the reasons.

    Returns:
        0; 1 if a file of a run is damaged or the output cannot be written; 2 if the parameters are
        wrong.
    """
    parser = _build_parser()
    options = parser.parse_args(arguments)
    if not any(getattr(options, output) for output in OUTPUTS):
        parser.error("nothing to do: give at least one of --output, --html, --figures and --text")
    if options.output and (options.output.suffix != ".tex" or options.output.name == APPENDIX_FILE):
        parser.error(f"--output {options.output}: name a .tex file other than {APPENDIX_FILE}")
    if not (options.config or options.sources):
        parser.error("give --config, --from, or both")
    if options.sources and options.kind != "report":
        parser.error(f"--from makes only the paper's tables: leave out --{options.kind}")
    try:
        data = _read_runs(options)
        inputs = _hash_inputs(data, options.kind)
        content = getattr(contents, f"build_{options.kind}")(data)
        if options.sources:
            content = imported.remove_empty_tables(content)
        written = _write_tables(data, content, options) if options.output else []
        if options.html or options.figures:
            written += _write_figures(data, content, options)
        if written:
            output = options.output or options.html
            folder = output.parent if output else options.figures
            write_manifest(folder, "report", _build_spec(data, options, folder), inputs, written)
    except (BadInput, OSError) as error:
        print(f"reports: {describe_shortage(error) or error}", file=sys.stderr)
        return BAD_USE if isinstance(error, BadParams) else BAD_RUN
    if options.text:
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 gets ? for a dash
        tables = [*content.results, *content.appendix]
        print(text.render(tables, data.params.name, content.lead))
    if written:
        counts = contents.describe_counts(data.frame)
        print(f"{written[0].parent}: {len(written)} files from {counts}", file=sys.stderr)
    return OK


def _read_runs(options: argparse.Namespace) -> ReportData:
    """Read the runs of --from, or else those that the parameters in --config need."""
    if options.sources:
        data = imported.read_sources(options.sources, options.config)
        of_folders = data.frame[data.frame.csv_file == ""]
        if changes := find_parameters_that_differ_between_seeds(of_folders):
            folder, differences = next(iter(changes.items()))
            print(
                "reports: warning: jobs that had other parameters than the same job with another "
                f"seed: {len(changes)}, such as {folder}: {', '.join(differences[:3])}. A cell "
                "has the mean over all seeds. To select seeds, set tables.main.seeds and "
                "tables.families.seeds in --config",
                file=sys.stderr,
            )
        if unused := data.unused:
            example = contents.format_run_name(unused[0])
            count = len(unused)
            print(
                f"left out: runs that no table shows: {count}, such as {example}", file=sys.stderr
            )
        return data
    params, (report, *_) = load_files(*options.config), KINDS[options.kind]
    if options.kind != "report" and not getattr(params, options.kind):
        raise BadParams(f"--{options.kind}: the parameters have no section {options.kind}")
    data = ReportData.read(params, options.root, LIST_RUNS[report](params))
    if changes := find_other_parameters(params, report, options.root):
        folder, differences = next(iter(changes.items()))
        print(
            f"reports: warning: {len(changes)} of the jobs whose results are shown were run with "
            f"other parameters, such as {folder}: {', '.join(differences[:3])}. To repeat them, "
            "run snakemake with the present parameters",
            file=sys.stderr,
        )
    return data


def _hash_inputs(data: ReportData, kind: str) -> dict[str, str]:
    """Return the SHA-256 of each file that the report may read, by path."""
    _, run_files, evaluation_files = KINDS[kind]
    is_from_csv = data.frame.csv_file != ""
    frame, csv_files = data.frame[~is_from_csv], data.frame.csv_file[is_from_csv].unique()
    root, arena = data.root, data.params.arena
    trained = frame[frame.algorithm != BASE]
    paths = [root / folder / name for folder in trained.folder for name in run_files]
    paths += [root / folder / name for folder in frame.evaluation for name in evaluation_files]
    # With `arena.only`, the other algorithms' results are read from the record of an earlier arena.
    # No job wrote this file, so no manifest has its digest.
    records = [root / arena.record] if kind == "arena" and arena.only else []
    digests = {path.as_posix(): verify_output(path) for path in paths}
    return digests | hash_files(*records, *map(Path, csv_files))


def _build_spec(data: ReportData, options: argparse.Namespace, folder: Path) -> Spec:
    """Return the spec of the report's manifest, which is written into this folder."""
    if options.sources:
        sources = list(map(str, options.sources))
        config = read(*options.config)
        return imported.ImportSpec(sources=sources, config=config).with_code_digest()
    spec = build_report_spec(data.params)
    paths = {option: getattr(options, option) for option in PIPELINE_FILES}
    if paths == {option: folder / name for option, name in PIPELINE_FILES.items()}:
        return spec
    return PartialReportSpec(**dict(spec), only=[str(path) for path in paths.values() if path])


def _write_tables(data: ReportData, content: Content, options: argparse.Namespace) -> list[Path]:
    """Write the results to tables.tex, and the other tables to appendix.tex; return all paths.

    Each file has a copy for the terminal beside it (.txt); the one of the results begins with the
    main findings. For an arena, but not for its tuning, results.csv with the end points
    (`reports.outcomes`) of each run is written too.
    """
    output, params = options.output, data.params
    paper_style = PaperStyle.from_params(params.report)
    prefix = params.name or latex.DEFAULT_PREFIX  # of the labels of tables
    results, appendix = content.results, content.appendix
    paths = []
    # The results do not refer to the appendix, which a paper may leave out.
    for path, tables, other_tables, lead in (
        (output, results, (), content.lead),
        (output.with_name(APPENDIX_FILE), appendix, results, ()),
    ):
        if tables or path == output:
            write_text(path, latex.render(tables, paper_style, prefix, other_tables))
            write_text(path.with_suffix(".txt"), text.render(tables, params.name, lead) + "\n")
            paths += [path, path.with_suffix(".txt")]
    if options.kind == "arena" and not data.params.arena.tuning:
        paths.append(output.with_name(RESULTS_FILE))
        write_text(paths[-1], build_record(data).to_csv(index=False, float_format="%.6g"))
    return paths


def _write_figures(data: ReportData, content: Content, options: argparse.Namespace) -> list[Path]:
    """Draw the figures, and write the files that the options name; return their paths."""
    from reports import plots  # imports matplotlib, which tables alone do not need
    from reports.plots import style
    from reports.render import html

    figures = plots.build_figures(options.kind, data)
    undrawable = imported.list_undrawable(figures, data.frame) if options.sources else {}
    for name, reason in undrawable.items():
        print(f"left out: the figure {figures.pop(name).title}: {reason}", file=sys.stderr)
    formats = [*(["pdf", "png"] if options.figures else []), *(["svg"] if options.html else [])]
    paper_style = PaperStyle.from_params(data.params.report)
    rendered = {
        name: style.render(figure, formats, paper_style) for name, figure in figures.items()
    }
    paths = style.save_figures(rendered, options.figures) if options.figures else []
    if options.html:
        images = {name: files["svg"] for name, files in rendered.items()}
        folder = options.html.parent.resolve()
        write_text(options.html, html.render(data, content, figures, images, folder))
        paths.append(options.html)
    return paths


def _build_parser() -> Parser:
    epilog = f"{imported.describe_columns()} docs/report.md explains them."
    parser = Parser(prog="python -m reports", description=__doc__, epilog=epilog)
    parser.set_defaults(kind="report")
    add = parser.add_argument
    help = "parameters: YAML or JSON files, later ones over earlier ones, or one JSON text"
    add("--config", nargs="+", default=[], metavar="FILE", help=help)
    help = "runs that were made elsewhere: folders with runs/ and evaluations/, and CSV files; "
    help += "--config may then be left out, or have only name and report"
    add("--from", dest="sources", nargs="+", type=Path, default=[], metavar="SOURCE", help=help)
    add("--root", type=Path, default=Path("."), help="folder that contains runs/")
    help = "where to write tables.tex, and beside it tables.txt, appendix.*, manifest.json and, "
    help += "for the arena, results.csv"
    add("--output", type=Path, help=help)
    add("--html", type=Path, help="where to write report.html, one file that opens offline")
    add("--figures", type=Path, metavar="FOLDER", help="where to write figures, as PDF and PNG")
    for kind in ("studies", "arena"):
        help = f"report the {kind} instead of the paper's tables"
        add(f"--{kind}", action="store_const", dest="kind", const=kind, help=help)
    help = "print the tables to standard output, and messages to standard error"
    add("--text", action="store_true", help=help)
    return parser


if __name__ == "__main__":
    end_with_workflow()  # ends this process if the workflow that started it ends
    with end_with_reader():  # exits silently if a reader of standard output, such as head, ends
        sys.exit(main())
