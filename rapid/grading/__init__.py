"""Graders: what turns a completion into a reward.

`code` runs programs in a sandbox, `math` compares answers, `lean` checks proofs. All of them offer
what `grader.Grader` says and answer with a reason of `verdicts`. `pool` has several side by side.
"""
