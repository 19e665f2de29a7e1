"""Reports: reads the result files of runs, computes statistics, and writes tables and figures.

`python -m reports` writes tables.tex, report.html and figures. There are three reports: the main
one, with the paper's tables, one on the studies (ablations, docs/studies.md) and one on the arena
(a preregistered comparison of algorithms with tuned learning rates, docs/arena.md). With
`arena.tuning`, the last is on the trials that choose these rates. The steps from files to text:

1. `collect`, `manifests`    result files -> a data frame with a row for each run; manifests
   `imported`                the same for runs that were made elsewhere: folders, CSV files
   `report_data`             parameters, data frame and manifests, which all later steps read
   `outcomes`                times to a target accuracy, and accuracies, which the arena compares
   `targets`                 the target accuracy of each benchmark of the arena
2. `statistics`              values -> means, tests and confidence intervals
3. `formats`, `labels`       numbers and names -> short texts: 12.3%, RAPID (H=8)
4. `tables`                  runs -> tables as plain data; `tables.columns` declares the columns
   `tuning`                  trials of learning rates -> the learning rates of the arena
5. `paper`, paper.yaml       the paper's own numbers, for the comparison with it
6. `plots`                   runs -> figures; `plots.figures` has a module for each
   `paper_style`             the page layout that tables and figures are made for
7. `findings`                the numbers in the first sentences of a report
   `examples`                completions of several models for the same problems
   `contents`                tables and figures in the order of reading, by contents.yaml
8. `render`                  plain data -> LaTeX, terminal, report.html, Markdown, CSV

`analyses` and `pooled` test the claims of the arena on two whole runs of the arena together.
`power` computes which effects a study can detect. `record` packs the results of an arena into
archives.

`python -m reports.experiment` writes the metrics and curves that `dvc exp show` and `dvc plots`
compare.
"""
