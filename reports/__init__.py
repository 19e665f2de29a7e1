"""From runs to tables: read what runs left behind, take means, print them.

`python -m reports` writes tables.tex. On the way from files to text, one module a step:

1. `collect`     files -> a data frame, a row a run
2. `statistics`  values -> mean, standard deviation, rank, correlation
3. `formats`     numbers -> short text: 12.3%, 4h42m
4. `tables`      data frame -> the four tables as plain data
5. `latex`, `text`  plain data -> tables.tex, or the terminal
"""
