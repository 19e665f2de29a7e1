"""`python -m reports`: the runs that exist -> tables.tex, report.html, figures, the terminal."""

import argparse
import sys
from pathlib import Path

from rapid.arguments import Parser
from rapid.artifacts.files import BadInput, write_text
from rapid.artifacts.manifests import digests, write_manifest, written_digest
from rapid.config.params import BadParams, load_files
from rapid.config.specs import BASE, in_arena, report_spec, runs, studied
from rapid.errors.shortages import shortage
from rapid.processes.lifetimes import end_with_reader, end_with_workflow
from rapid.stages.evaluate import CURVE
from rapid.stages.train import TOKEN_WEIGHTS
from reports import contents
from reports.contents import Content
from reports.measured import Measured
from reports.outcomes import RESULTS, record
from reports.render import latex, text

OK, BAD_RUN, BAD_USE = 0, 1, 2
RUNS = {"report": runs, "studies": studied, "arena": in_arena}  # that a report of a kind is about


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns: 0; 1 where a run's file is damaged or the output cannot be written; 2 where the
    parameters are wrong. Runs that are missing are no error: their cells say so.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.output or options.html or options.figures or options.text):
        parser.error("nothing to do: give --output, --html, --figures or --text, or several")
    kind = options.kind
    try:
        params = load_files(*options.config)
        if kind != "report" and not getattr(params, kind):
            raise BadParams(f"--{kind}: params name no {kind}")
        measured = Measured.read(params, options.root, RUNS[kind](params))
        inputs = {path.as_posix(): written_digest(path) for path in _read(measured, kind)}
        inputs |= digests(*_records(measured, kind))
        content = getattr(contents, f"build_{kind}")(measured)
        written = _tables(content, options.output) if options.output else []
        if options.output and kind == "arena" and not params.arena.tuning:
            written.append(options.output.with_name(RESULTS))
            write_text(written[-1], record(measured).to_csv(index=False, float_format="%.6g"))
        if options.html or options.figures:
            written += _drawn(measured, content, options)
        if written:
            beside = options.output or options.html
            folder = beside.parent if beside else options.figures
            write_manifest(folder, "report", report_spec(params), inputs, written)
    except (BadInput, OSError) as error:
        print(f"reports: {shortage(error) or error}", file=sys.stderr)
        return BAD_USE if isinstance(error, BadParams) else BAD_RUN
    if options.text:
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 gets ? for a dash
        print(text.render([*content.results, *content.appendix]))
    if written:
        counts = contents.counts(measured.frame)
        print(f"{written[0].parent}: {len(written)} files from {counts}", file=sys.stderr)
    return OK


def _tables(content: Content, output: Path) -> list[Path]:
    """Write tables.tex, with the results, and appendix.tex, with the other tables; as text too."""
    appendix = output.with_name("appendix.tex")
    paths = []
    for path, tables in ((output, content.results), (appendix, content.appendix)):
        if tables or path == output:
            write_text(path, latex.render(tables))
            write_text(path.with_suffix(".txt"), text.render(tables) + "\n")
            paths += [path, path.with_suffix(".txt")]
    return paths


def _drawn(measured: Measured, content: Content, options: argparse.Namespace) -> list[Path]:
    """Draw the figures, and write them and report.html where asked to."""
    from reports import plots
    from reports.plots import style  # matplotlib: only who asks for figures waits for it
    from reports.render import html

    figures = plots.build(options.kind, measured)
    kinds = [*(["pdf", "png"] if options.figures else []), *(["svg"] if options.html else [])]
    rendered = {name: style.render(figure, kinds) for name, figure in figures.items()}
    paths = style.save(rendered, options.figures) if options.figures else []
    if options.html:
        images = {name: files["svg"] for name, files in rendered.items()}
        folder = options.html.parent.resolve()
        write_text(options.html, html.render(measured, content, figures, images, folder))
        paths.append(options.html)
    return paths


def _read(measured: Measured, kind: str) -> list[Path]:
    """Return the runs' files that a report may be from."""
    trained = measured.frame[measured.frame.algorithm != BASE]
    own = ("summary.json", *(["steps.jsonl", TOKEN_WEIGHTS] if kind == "report" else []))
    of_evaluations = ("evaluation.json", *([] if kind == "report" else [CURVE]))
    places = [(folder, name) for folder in trained.folder for name in own]
    places += [(folder, n) for folder in measured.frame.evaluation for n in of_evaluations]
    return [measured.root / folder / name for folder, name in places]


def _records(measured: Measured, kind: str) -> list[Path]:
    """Return the record of an arena that a report compares with."""
    arena = measured.params.arena
    return [measured.root / arena.record] if kind == "arena" and arena.only else []


def _parser() -> Parser:
    parser = Parser(prog="python -m reports", description=__doc__)
    add = parser.add_argument
    add(
        "--config",
        nargs="+",
        required=True,
        metavar="FILE",
        help="params as YAML or JSON, later files over earlier; or one JSON text, as Snakemake's "
        "merged config",
    )
    add("--root", type=Path, default=Path("."), help="folder that holds runs/")
    add(
        "--output",
        type=Path,
        help="where to write tables.tex; tables.txt, appendix.tex, appendix.txt and manifest.json "
        "go beside it",
    )
    add("--html", type=Path, help="where to write report.html, one file that opens offline")
    add("--figures", type=Path, metavar="FOLDER", help="where to write figures, as PDF and PNG")
    for kind in ("studies", "arena"):
        add(
            f"--{kind}",
            action="store_const",
            dest="kind",
            const=kind,
            default="report",
            help=f"report the {kind} instead of the paper's tables",
        )
    add(
        "--text",
        action="store_true",
        help="print the tables to standard output, messages go to standard error",
    )
    return parser


if __name__ == "__main__":
    end_with_workflow()
    with end_with_reader():
        sys.exit(main())
