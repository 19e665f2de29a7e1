"""Grader of mathematical answers: compares the last \\boxed{} with the known answer."""
