# The input and output files of reports, and their captions in `snakemake --report`.

import ast

from reports.plots import FIGURES, list_arena_figures, list_study_figures

# Files that `snakemake --report` shows in addition to figures.
TABLES = {
    "report.html": "all tables and figures on one page",
    "tables.txt": "the tables, as text",
    "appendix.txt": "set-up, intervals, comparisons and the paper's claims, as text",
}
ARENA = PLAN.params.arena


def in_report(category, path):
    """Return an output, marked for `snakemake --report` if it is a table, a page or a figure."""
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


def page(folder, category, figures):
    """Return the output files of a report: its tables, its page and its figures."""
    drawn = [f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "png")]
    names = ["manifest.json", "tables.tex", "tables.txt", "report.html", *drawn]
    return [in_report(category, f"{folder}/{name}") for name in names]


def input_results_of(rule_name, plan=PLAN, extra_files=()):
    """Return an input function for a report's rule: the results that the report shows."""
    job = plan.job(STAGES[rule_name].folder)
    results = [path for result in job.inputs for path in result.declared]
    return lambda wildcards: input_files(job, [*results, *extra_files])


def code_of(rule_name, plan=PLAN):
    """Return the digest of a report's code, so that a change of code makes the report again."""
    return plan.job(STAGES[rule_name].folder).spec.code
