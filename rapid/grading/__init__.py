"""Graders, which turn completions into rewards.

`code` runs programs in a sandbox, `math` compares answers, `lean` checks proofs. All graders
implement `grader.Grader` and return a `verdicts.Verdict`. `pool` runs several graders in parallel.
"""
