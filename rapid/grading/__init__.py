"""Graders: what turns a completion into a reward.

`code` runs programs in a sandbox, `boxed` compares mathematical answers, `lean` checks proofs.
Their common interface is `base.Grader`; why a verdict is what it is stands in `reasons`.
"""
