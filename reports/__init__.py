"""From runs to a report: read what runs left behind, take means, print them.

`python -m reports` writes tables.tex, report.html and figures. On the way from files to text:

1. `collect`, `manifests`    files -> a data frame with a row for each run; manifests
   `imported`                the same of runs that were made elsewhere: folders, CSV files
   `measured`                all that the rest is computed from: parameters, runs, places
2. `statistics`              values -> means, ranks, and intervals
3. `formats`, `labels`       numbers and names -> short text: 12.3%, RAPID (H=8)
4. `tables`                  runs -> tables as plain data; a column is an object of `tables.columns`
5. `paper`, paper.yaml       the paper's own figures, for the tables beside it
6. `plots`                   runs -> figures, a module for each in `plots.figures`
7. `findings`                the numbers in a report's first sentences
   `contents`                all of it in the order of reading, by contents.yaml
8. `render`                  plain data -> LaTeX, the terminal, report.html, Markdown, CSV

`experiment` writes what `dvc exp show` compares.
"""
