"""`python -m reports`: the runs that exist -> tables.tex, report.html, figures, tables on the terminal."""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd
import yaml

from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import write_manifest
from rapid.config.jobs import plan
from rapid.config.params import BadParams, Params, load, read
from rapid.config.specs import Run, evaluated, report_spec, runs, studied
from rapid.stages.evaluate import CURVE
from rapid.stages.train import TOKEN_WEIGHTS
from reports import latex, sections, text
from reports.collect import BadRun, collect
from reports.sections import Content

OK, BAD_RUN, BAD_USE = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns: 0; 1 where a run's file is damaged or the output cannot be written; 2 where the
    parameters are wrong. Runs that are missing are no error: their cells say so.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.output or options.html or options.figures or options.text):
        parser.error("nothing to do: give --output, --html, --figures or --text, or several")
    try:
        params = _params(options.config)
    except (OSError, ValueError, yaml.YAMLError) as error:
        return _fail(error, BAD_USE)
    if options.studies and not params.studies:
        return _fail(BadParams("--studies: params name no studies"), BAD_USE)
    try:
        trained = studied(params) if options.studies else runs(params)
        frame = collect(params, options.root, trained)
        build = sections.build_studies if options.studies else sections.build
        content = build(params, frame, options.root)
        written = [
            *(_tables(content, options.output) if options.output else []),
            *(_drawn(params, frame, content, options) if options.html or options.figures else []),
        ]
        if written:
            beside = options.output or options.html
            folder = beside.parent if beside else options.figures
            inputs = _inputs(params, trained, options)
            write_manifest(folder, "report", report_spec(params), inputs, written)
    except (OSError, BadRun) as error:
        return _fail(error, BAD_RUN)
    if options.text:
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 gets ? for a dash
        print(text.render([*content.results, *content.appendix]))
    if written:
        print(f"{len(written)} files from {sections.counts(frame)}", file=sys.stderr)
    return OK


def _tables(content: Content, output: Path) -> list[Path]:
    """Write tables.tex, with the paper's results tables, and appendix.tex, with the others; both as
    text too."""
    paths = []
    for path, tables in (
        (output, content.results),
        (output.with_name("appendix.tex"), content.appendix),
    ):
        if not tables:
            continue
        texts = {path: latex.render(tables), path.with_suffix(".txt"): text.render(tables) + "\n"}
        for name, written in texts.items():
            write_text(name, written)
            paths.append(name)
    return paths


def _drawn(
    params: Params, frame: pd.DataFrame, content: Content, options: argparse.Namespace
) -> list[Path]:
    """Draw the figures, and write them and report.html where asked to."""
    from reports import html, plots  # matplotlib: only who asks for figures waits for it
    from reports.plots import style

    build = plots.build_studies if options.studies else plots.build
    figures = build(params, frame, options.root)
    kinds = [*(["pdf", "png"] if options.figures else []), *(["svg"] if options.html else [])]
    rendered = {figure.name: style.render(figure, kinds) for figure in figures}
    paths = style.save(rendered, options.figures) if options.figures else []
    if options.html:
        page = html.Page(
            frame=frame,
            content=content,
            figures={figure.name: figure for figure in figures},
            images={name: files["svg"] for name, files in rendered.items()},
            root=options.root.resolve(),
            folder=options.html.parent.resolve(),
        )
        write_text(options.html, html.render(page))
        paths.append(options.html)
    return paths


def _inputs(params: Params, trained: list[Run], options: argparse.Namespace) -> list[Path]:
    """The runs' files that a report may be from."""
    root, place = options.root, plan(params, options.root).folder
    own = ("summary.json", "steps.jsonl", *([] if options.studies else [TOKEN_WEIGHTS]))
    of_evaluations = ("evaluation.json", *([CURVE] if options.studies else []))
    return [
        *(root / place(run.folder) / name for run in trained for name in own),
        *(root / place(run.evaluation) / n for run in evaluated(trained) for n in of_evaluations),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument(
        "--config",
        nargs="+",
        required=True,
        metavar="FILE",
        help="params as YAML or JSON, later files over earlier; or one JSON text, as Snakemake's "
        "merged config",
    )
    parser.add_argument("--root", type=Path, default=Path("."), help="folder that holds runs/")
    parser.add_argument(
        "--output",
        type=Path,
        help="where to write tables.tex; tables.txt, appendix.tex, appendix.txt and manifest.json go "
        "beside it",
    )
    parser.add_argument(
        "--html", type=Path, help="where to write report.html, one file that opens offline"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="where to write figures, as PDF and PNG"
    )
    parser.add_argument(
        "--studies", action="store_true", help="report the studies instead of the paper's tables"
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="print the tables to standard output, messages go to standard error",
    )
    return parser


def _params(config: list[str]) -> Params:
    """Read and validate the parameters.

    Raises:
        BadParams, ValueError, OSError, yaml.YAMLError: with what is wrong and where.
    """
    if len(config) == 1 and config[0].lstrip().startswith("{"):
        return load(json.loads(config[0]))
    for path in config:
        if not Path(path).is_file():
            raise BadParams(f"--config {path}: there is no such file")
    return load(read(*config))


def _fail(error: Exception, code: int) -> int:
    print(f"reports: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
