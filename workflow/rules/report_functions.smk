# The input and output files of reports, and their captions in `snakemake --report`. PLAN, STAGES,
# ROOT and `plan_input_files` are from common.smk.

import ast

from reports.plots import FIGURES, list_arena_figures, list_study_figures

# Files that `snakemake --report` shows in addition to figures.
TABLES = {
    "report.html": "all tables and figures on one page",
    "tables.txt": "the tables, as text",
    "appendix.txt": "set-up, intervals, comparisons and the paper's claims, as text",
}
ARENA = PLAN.params.arena  # None if params.yaml has no arena


def mark_for_report(category, path):
    """Return an output, marked for `snakemake --report` if it is in `TABLES` or a PNG figure."""
    file, description, kind = Path(path), "", "figures"
    source = Path(ROOT, "reports/plots/figures", f"{file.stem.replace('-', '_')}.py")
    if file.name in TABLES:
        description, kind = TABLES[file.name], "tables"
    elif file.suffix != ".png":
        return path
    elif source.exists():
        description = (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]
    return report(
        path,
        caption=f"../report/{kind}.rst",
        category=category,
        subcategory=kind,
        labels={"name": file.name, "shows": description},
    )


def list_report_files(folder, category, figures):
    """Return the output files of a report: its tables, its page and its figures."""
    figure_files = [f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "png")]
    names = ["manifest.json", "tables.tex", "tables.txt", "report.html", *figure_files]
    return [mark_for_report(category, f"{folder}/{name}") for name in names]


def get_input_results(rule_name, plan=PLAN, extra_files=()):
    """Return a function of wildcards that returns the files with the results of a report.

    `plan` is `PLAN.default` for the report of the default parameters.
    """
    job = plan.get_job(STAGES[rule_name].folder)
    results = [path for input_job in job.inputs for path in input_job.declared_outputs]
    return lambda wildcards: plan_input_files(job, [*results, *extra_files])


def get_code_digest(rule_name, plan=PLAN):
    """Return the digest of a report's code, so that changed code makes the report again."""
    return plan.get_job(STAGES[rule_name].folder).spec.code
