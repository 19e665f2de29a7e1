# The files that reports read and write, and how `snakemake --report` shows them.

import ast

from reports.plots import FIGURES, arena_figures, study_figures

# What `snakemake --report` shows beside the figures.
TABLES = {
    "report.html": "all tables and figures on one page",
    "tables.txt": "the tables, as text",
    "appendix.txt": "set-up, intervals, comparisons and the paper's claims, as text",
}
ARENA = PLAN.params.arena


def in_report(category, path):
    """Return an output; marked for `snakemake --report` if it is a table, a page or a figure."""
    file, description, kind = Path(path), "", "figures"
    drawn_by = Path(ROOT, "reports/plots/figures", f"{file.stem.replace('-', '_')}.py")
    if file.name in TABLES:
        description, kind = TABLES[file.name], "tables"
    elif file.suffix != ".png":
        return path
    elif drawn_by.exists():
        description = (ast.get_docstring(ast.parse(drawn_by.read_text())) or "").partition("\n")[0]
    return report(
        path,
        caption=f"../report/{kind}.rst",
        category=category,
        subcategory=kind,
        labels={"name": file.name, "shows": description},
    )


def page(folder, category, figures):
    """Return the files of a report: its tables, its page and its figures."""
    drawn = [f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "png")]
    names = ["manifest.json", "tables.tex", "tables.txt", "report.html", *drawn]
    return [in_report(category, f"{folder}/{name}") for name in names]


def results_behind(rule_name, extra_files=()):
    """Return a function of wildcards: the files that a report is made from."""

    def result_files(job):
        results = [path for result in job.inputs for path in result.declared]
        return input_files(job, [*results, *extra_files])

    folder = STAGES[rule_name].folder
    return lambda wildcards: result_files(PLANS[wildcards.get("root", PLAN.root)].job(folder))


def parameters(wildcards):
    """Return all parameters, as JSON."""
    return PLANS[wildcards.get("root", PLAN.root)].params.model_dump_json()


def code_of(rule_name):
    """Return the digest of the code that makes a report: a change of it makes the report again."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: PLANS[wildcards.get("root", PLAN.root)].job(folder).spec.code
