# Tables, figures and report.html, from the runs' small files; each report in its folder.

import ast

from reports.plots import FIGURES, arena_figures, study_figures


def printed(figures):
    """Return the names of the files that `python -m reports` writes."""
    drawn = [f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "png")]
    return ["manifest.json", "tables.tex", "tables.txt", "report.html", *drawn]


# What `snakemake --report` shows beside the figures.
TABLES = {
    "report.html": "all tables and figures on one page",
    "tables.txt": "the tables, as text",
    "appendix.txt": "set-up, intervals, comparisons and the paper's claims, as text",
}


def marked(report_name, path):
    """Return an output; marked for `snakemake --report` if it is a table, a page or a figure."""
    file, about, kind = Path(path), "", "figures"
    drawn_by = Path(ROOT, "reports/plots/figures", f"{file.stem.replace('-', '_')}.py")
    if file.name in TABLES:
        about, kind = TABLES[file.name], "tables"
    elif file.suffix != ".png":
        return path
    elif drawn_by.exists():
        about = (ast.get_docstring(ast.parse(drawn_by.read_text())) or "").partition("\n")[0]
    return report(
        path,
        caption=f"../report/{kind}.rst",
        category=f"The {report_name.replace('_', ' ')}",
        subcategory=kind,
        labels={"name": file.name, "shows": about},
    )


def read_by(job, record):
    """Return a rule's input function: the files that a report is made from, a record's too."""
    declared = [path for each in job.inputs for path in each.declared]
    return lambda wildcards: depend(job, declared, record)


PRINT = "reports --output {0}/tables.tex --html {0}/report.html --figures {0}/figures"

for plan in PLANS.values():
    arena = plan.params.arena
    results = ["results.csv"] if arena and not arena.tuning else []  # by seed: tuning has none
    # Rule: its folder, what makes it, what it leaves there.
    reports = {
        "report": ("reports", PRINT, [*printed(FIGURES), "appendix.tex", "appendix.txt"]),
        "studies": (jobs.STUDIES, f"{PRINT} --studies", printed(study_figures(plan.params))),
        "arena": (
            jobs.ARENA,
            f"{PRINT} --arena",
            [*printed(arena_figures(plan.params)), *results],
        ),
        # The figures of one H, for `dvc exp show` and `dvc plots`.
        "experiment": (
            "reports/experiment",
            "reports.experiment --out {0}",
            ["manifest.json", "metrics.json"],
        ),
    }
    for name, (place, command, made) in reports.items():
        job = plan.job(place)
        record = [arena.record] if name == "arena" and arena and arena.only else []

        rule:
            name:
                name if plan is PLAN else f"{name}_of_default"
            input:
                read_by(job, record),
            output:
                [marked(name, f"{plan.root}{place}/{file}") for file in made],
            log:
                f"{plan.root}logs/{name}.log",
            benchmark:
                f"{plan.root}benchmarks/{name}.tsv"
            resources:
                **needs(),
            params:
                config=plan.params.model_dump_json(),
                command=command.format(job.folder),
                code=job.spec.code,
            shell:
                "RAPID_WORKFLOW=$PPID exec"
                " python -m {params.command} --config {params.config:q} > {log} 2>&1"
