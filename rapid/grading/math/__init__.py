"""MATH: the last \\boxed{} of a completion, compared with the known answer."""
