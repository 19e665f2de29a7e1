"""Mathematical answers are graded by what they mean, and by the last box alone."""

import pytest

from rapid.benchmarks.math.record import MathProblem
from rapid.grading import verdicts
from rapid.grading.math.grader import MathGrader, last_boxed


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout=10.0) as grader:
        yield grader


def problem(answer: str) -> MathProblem:
    return MathProblem(unique_id=answer, problem="", answer=answer)


BOXES = [
    ("so \\boxed{5}.", "5"), ("\\boxed{1} or rather \\boxed{ 2 } as shown", "2"), ("\\boxed{\\frac{1}{2}} }", "\\frac{1}{2}"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"), ("\\boxed{a \\boxed{b}}", "b"), ("\\boxed {7}", "7"), ("\\boxed{}", ""),
    ("\\boxed{1} then \\boxed{2", None), ("\\boxed 2$", "2"), ("\\boxed\\pi", "\\pi"), ("\\boxed12", "1"),
    ("\\boxed{1}, which is \\boxed.", None), ("\\boxedtext{5}", None), ("\\fbox{$5$}", "$5$"),
    ("\\boxed{1} and \\fbox{2}", "1"), ("5", None), ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content"), BOXES)
def test_the_last_box_is_found(text, content):
    assert last_boxed(text) == content


def passes(grader, gold, *answers, question=""):
    asked = problem(gold).model_copy(update={"problem": question})
    for answer in answers:
        assert grader.grade(asked, f"\\boxed{{{answer}}}").reward == 1.0, (gold, answer)


def fails(grader, gold, *answers, question=""):
    asked = problem(gold).model_copy(update={"problem": question})
    for answer in answers:
        assert grader.grade(asked, f"\\boxed{{{answer}}}").reward == 0.0, (gold, answer)


def test_fractions(grader):
    passes(
        grader,
        "\\frac{3}{4}",
        "\\frac34",
        "\\dfrac{3}{4}",
        "\\tfrac34",
        "3/4",
        "\\frac{6}{8}",
        "0.75",
    )
    fails(grader, "\\frac{3}{4}", "\\frac43", "34", "0.7", "\\frac{3}{4}\\cdot 2")


def test_mixed_numbers_are_sums_and_other_neighbours_are_not(grader):
    passes(grader, "3\\frac12", "\\frac72", "3.5", "3 \\frac{1}{2}")
    fails(grader, "6", "2(3)", "2 3", "5 1", "5{1}")
    fails(grader, "5", "2(3)", "(2)(3)", "2 3", "{2}{3}", "5 6")
    fails(grader, "\\frac32", "3\\frac12")


def test_decimals(grader):
    passes(grader, "0.5", ".5", "0.50", "\\frac12")
    passes(grader, "\\frac13", "0.\\overline{3}", "0.333333")
    passes(grader, "0.1\\overline{6}", "\\frac16")
    fails(grader, "\\frac13", "0.3", "0.33", "0.\\overline{4}")
    fails(grader, "5", "5.0000001", "4.9999999")


def test_small_numbers_are_not_zero(grader):
    fails(grader, "\\frac{1}{2^{30}}", "0", "0.0", "0.000000001")
    fails(grader, "\\frac{1}{2187}", "0.000457", "0.0005")
    fails(grader, "3^{-40}\\pi", "0\\pi")
    fails(grader, "0", "0.0000001")


def test_thousands(grader):
    passes(grader, "1000", "1,000", "1{,}000", "1\\,000", "1 000", "1,\\!000")
    passes(grader, "45,\\!045", "x = 45{,}045")
    fails(grader, "1000", "1,0,0,0", "1, 000, 1", "100")


def test_units_may_be_left_out_but_not_be_others(grader):
    passes(grader, "8\\text{ cm}", "8", "8 cm", "8\\,\\mathrm{cm}", "8\\text{ centimeters}")
    passes(grader, "8\\text{ cm}^2", "8", "8\\text{ square centimeters}")
    passes(grader, "210\\text{ ways}", "210", "210\\text{ ways}")
    passes(grader, "60^\\circ", "60", "60^{\\circ}", "60\\text{ degrees}")
    fails(grader, "8\\text{ cm}", "8\\text{ km}", "8\\text{ cm}^2", "8\\text{ hours}")
    fails(grader, "60^\\circ", "60\\text{ radians}")
    fails(grader, "10\\text{ a.m.}", "10\\text{ p.m.}")


def test_a_unit_that_is_no_measure_stands_in_the_question(grader):
    question = "How many boxes of apples are there? Each has 2 pieces."
    passes(grader, "5", "5\\text{ boxes}", "5 apples", "5\\text{ pieces}", question=question)
    passes(grader, "5\\text{ ways}", "5 boxes", question=question)
    fails(grader, "5", "5\\text{ parsecs}", "5 pears", question=question)
    fails(grader, "5\\text{ cm}", "5 apples", question=question)


def test_square_units_may_stand_for_a_measure_of_area(grader):
    passes(grader, "8\\text{ cm}^2", "8\\text{ square units}", "8\\text{ units}^2")
    passes(grader, "8", "8\\text{ units}", "8\\text{ square units}")
    fails(grader, "8\\text{ cm}^2", "8\\text{ units}", "8\\text{ cubic units}")


def test_a_variable_is_no_unit(grader):
    fails(grader, "3t", "3", "3s")
    fails(grader, "6c", "6", "6m")


def test_money(grader):
    passes(grader, "\\$30", "30", "\\$30.00", "30\\text{ dollars}")
    fails(grader, "\\$30", "30\\%", "30\\text{ cents}")


def test_percentages(grader):
    passes(grader, "30\\%", "30", "0.3", "\\frac{3}{10}", "30\\text{ percent}")
    passes(grader, "0.3", "30\\%")
    passes(grader, "30", "30\\%", question="What percent of 10 is 3?")
    fails(grader, "30", "30\\%", question="How many are there?")
    fails(grader, "0.3", "0.3\\%")
    fails(grader, "30\\%", "\\$30", "0.3\\%")


def test_numbers_in_a_base(grader):
    passes(grader, "861_{12}", "861", "(861)_{12}", "861_{12}")
    passes(grader, "11", "11_2", question="Write 3 in base 2.")
    fails(grader, "861_{12}", "861_{11}", "861_7", "1213")
    fails(grader, "11", "11_2", question="How many are there?")
    fails(grader, "3", "11_2", question="What is 11_2 in base 10?")
    fails(grader, "A_2", "A_3")


def test_intervals(grader):
    passes(grader, "(-\\infty,-5)\\cup(-5,5)", "(-5,5)\\cup(-\\infty,-5)")
    passes(grader, "[-\\tfrac18, \\tfrac98]", "\\left[-\\frac{1}{8},\\frac{9}{8}\\right]")
    fails(grader, "(1,2]", "[1,2]", "(1,2)", "[1,2)", "(1,3]")


def test_a_union_is_of_no_more_intervals_than_it_takes(grader):
    passes(grader, "[0,1]\\cup[2,3]\\cup[4,5]", "[4,5]\\cup[2,3]\\cup[0,1]")
    passes(grader, "\\mathbb{R}\\setminus\\{1\\}", "(-\\infty,1)\\cup(1,\\infty)")
    passes(grader, "[0,1]\\cup[1,2]", "[1,2]\\cup[0,1]", "[0,2]")
    fails(grader, "[0,7]", "[0,5]\\cup[3,7]", "[0,7]\\cup[0,7]", "x\\in[0,5]\\cup[3,7]")
    fails(grader, "x\\ge 5", "[5,6]\\cup[6,\\infty)")
    fails(grader, "[0,1]\\cup[2,3]", "[0,1]\\cup[2,3]\\cup[0,1]", "[0,1]\\cup([2,3]\\cup[3,3])")


def test_tuples_have_an_order(grader):
    passes(grader, "(3,1,2)", "(3, 1, 2)", "\\left(3,1,2\\right)", "3,1,2")
    fails(grader, "(3,1,2)", "(1,2,3)", "1,2,3", "\\{3,1,2\\}")
    fails(grader, "(1,2)", "(2,1)", "\\{1,2\\}", "[1,2]")
    passes(grader, "(1,2),(3,4)", "(3,4),(1,2)", "\\{(1,2),(3,4)\\}")
    fails(grader, "(1,2),(3,4)", "(2,1),(3,4)", "\\{1,2\\},\\{3,4\\}")


def test_sets_and_lists_have_none(grader):
    passes(grader, "\\{1,2,3\\}", "\\{3,1,2\\}", "3,2,1")
    passes(grader, "0,1", "x = 1 \\text{ or } x = 0", "1 \\text{ and } 0")
    passes(grader, "\\sqrt2,-\\sqrt2", "\\pm\\sqrt{2}")
    fails(grader, "\\{1,2,3\\}", "(1,2,3)", "\\{1,2\\}", "1,2,3,4")
    fails(grader, "2,2,3", "2,3", "3,3,2")
    fails(grader, "1,2,\\ldots,10", "1,2,10")


def test_matrices(grader):
    column = "\\begin{pmatrix} 0 \\\\ 1/11 \\end{pmatrix}"
    passes(grader, column, "\\begin{bmatrix} 0 \\\\ \\frac{1}{11} \\end{bmatrix}")
    fails(grader, column, "\\begin{pmatrix} 0 & 1/11 \\end{pmatrix}", "(0,\\frac{1}{11})")


def test_texts(grader):
    passes(grader, "\\text{odd}", "odd", "\\textbf{odd}", "\\text{Odd}")
    passes(grader, "\\text{odd}", "\\displaystyle\\text{odd}", "x = \\text{odd}")
    passes(grader, "\\text{(A)}", "A", "(A)", "\\text{A}")
    passes(grader, "ABC", "\\text{ABC}")
    passes(grader, "\\text{(E)},", "\\text{(E)}")
    fails(grader, "\\text{odd}", "\\text{even}", "\\text{not odd}", "\\text{odd or even}")
    fails(grader, "\\text{(A)}", "\\text{(B)}", "A, B", "\\text{A or B}")
    fails(grader, "ABC", "CBA", "\\text{ACB}")
    fails(grader, "east", "seat")
    fails(grader, "5\\text{ hours }30\\text{ minutes}", "30\\text{ hours }5\\text{ minutes}")


def test_times_are_not_quotients(grader):
    passes(grader, "8:30", "8:30", "8:30\\text{ p.m.}")
    fails(grader, "8:30", "4:15")


def test_letters(grader):
    passes(grader, "23a+39b", "39b+23a")
    fails(grader, "x_1", "x_2")
    fails(grader, "f'(x)", "f(x)")
    fails(grader, "a+A", "2a")


def test_equations(grader):
    passes(grader, "5", "5.0", "\\$5", "x=5", "2+3=5", "f(2)=5", "\\angle ABC = 5")
    passes(grader, "2x+3y=6", "4x+6y=12", "y=2-\\frac{2x}{3}")
    fails(grader, "5", "7=5", "x=10/3=5", "x=6")
    fails(grader, "x^2+1=0", "x^2+2=0")
    fails(grader, "x=5", "y=5")


@pytest.mark.parametrize("completion", ["5", "\\boxed{ }", "\\boxed{5"])
def test_without_a_box_there_is_no_answer(grader, completion):
    assert grader.grade(problem("5"), completion).reason == verdicts.NO_ANSWER


def test_what_is_no_expression_is_unparsable(grader):
    assert grader.grade(problem("5"), "\\boxed{\\frac}").reason == verdicts.UNPARSABLE


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{5}", "\\boxed{\\text{ }}"])
def test_a_problem_without_an_answer_is_passed_by_nothing(grader, answer):
    assert grader.grade(problem(""), answer).reward == 0.0


def test_a_sum_or_a_limit_is_left_to_nobody(grader):
    passes(grader, "\\sum_{k=1}^n a_k", "\\sum_{k=1}^{n} a_k")
    fails(grader, "5050", "\\sum_{k=1}^{100} k", "\\int_0^{5050} 1 dx", "\\gcd(5050,10100)")


def test_the_question_is_no_answer(grader):
    fails(grader, "2\\sqrt2", "\\sqrt{8}", question="Simplify $\\sqrt 8$.")
    passes(grader, "2\\sqrt2", "\\sqrt{8}", question="How long is the diagonal?")
    fails(grader, "\\frac12", "0.5", "x=0.5", question="Write $0.5$ as a fraction.")
    fails(grader, "5x", "2x+3x", "3x+2x", question="Simplify $2x+3x$.")
    passes(grader, "5", "x=5", question="Which is larger, $4$ or $5$?")
    passes(grader, "\\left(1,2\\right)", "(1,2)", question="Is it $(1,2)$ or $(2,1)$?")


def test_a_formula_in_several_lines_is_read_in_pieces(grader):
    question = "Let \\begin{align*} a &= (x+2)(x+3), \\\\ b &= 1. \\end{align*} Expand $a$."
    fails(
        grader, "x^2+5x+6", "(x+3)(x+2)", question=question.replace("\\begin", "$$\\begin") + "$$"
    )


HONEST = [
    ("3+2\\sqrt{5}", ["2\\sqrt5+3", "3+\\sqrt{20}"]),
    ("\\frac{1+\\sqrt5}{2}", ["\\frac12+\\frac{\\sqrt5}{2}", "\\frac{1}{2}(1+\\sqrt{5})", "(1+\\sqrt5)/2"]),
    ("2^{10}", ["1024", "4^5"]),
    ("10!", ["3628800"]),
    ("1.2\\times10^5", ["120000", "1.2\\cdot10^5"]),
    ("\\frac{2\\sqrt3}{3}", ["\\frac{2}{3}\\sqrt{3}", "\\frac{2}{\\sqrt{3}}", "\\frac{\\sqrt{12}}{3}"]),
    ("\\frac{\\sqrt{21}}{3}", ["\\sqrt{\\frac{7}{3}}", "\\frac{\\sqrt7}{\\sqrt3}"]),
    ("10\\pi", ["10 \\cdot \\pi", "\\pi\\cdot 10"]),
    ("\\frac{3\\pi}{4}", ["\\frac{3}{4}\\pi", "3\\pi/4", "0.75\\pi"]),
    ("4\\sqrt{2}+4", ["4(\\sqrt2+1)", "4+\\sqrt{32}"]),
    ("(x+2)(x+3)", ["x^2+5x+6", "x(x+5)+6"]),
    ("y=2x+7", ["2x+7", "y-7=2x", "2x-y+7=0"]),
    ("x^2-2", ["(x-\\sqrt{2})(x+\\sqrt2)", "-2+x^2"]),
    ("\\frac{x^2}{4}-1", ["\\frac14x^2-1", "\\frac{x^2-4}{4}", "\\frac{(x-2)(x+2)}{4}"]),
    ("x^{-2}", ["\\frac{1}{x^2}"]),
    ("\\frac{n(n+1)}{2}", ["\\frac{n^2+n}{2}", "\\frac12 n(n+1)"]),
    ("(x-1)^2+(y+2)^2=9", ["x^2-2x+y^2+4y-4=0"]),
    ("\\sqrt{x+1}", ["(x+1)^{1/2}"]),
    ("1+\\sqrt{19},1-\\sqrt{19}", ["1\\pm\\sqrt{19}"]),
    ("(-\\infty,\\infty)", ["\\mathbb{R}"]),
    ("x\\ge 5", ["[5,\\infty)"]),
    ("\\emptyset", ["\\{\\}"]),
    ("e^2", ["\\exp(2)"]),
    ("(1,\\frac92)", ["(x,y)=(1,9/2)", "(1,4.5)"]),
    ("[-10,4]", ["x\\in[-10,4]"]),
    ("12\\frac35", ["12.6", "\\frac{63}{5}"]),
    ("3\\cdot 2^n", ["2^n\\cdot 3"]),
    ("3+4i", ["4i+3"]),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answers"), HONEST)
def test_no_honest_form_is_lost(grader, gold, answers):
    passes(grader, gold, *answers)


def test_an_operation_of_the_known_answer_is_open_to_an_answer(grader):
    passes(grader, "\\binom{8}{3}", "\\dbinom{8}{3}", "\\binom{8}{5}", "56")
    fails(grader, "56", "\\binom{8}{3}")


def test_unreduced_fractions_are_answers_unless_they_are_integers(grader):
    passes(grader, "\\frac{2}{3}", "\\frac{8}{12}")
    fails(grader, "2", "\\frac{24}{12}", "24/12")
