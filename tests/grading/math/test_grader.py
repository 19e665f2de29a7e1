"""Mathematical answers are graded by what they mean, and by the last box alone."""

import re

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


# The known answer; behind ✓ what passes, behind ✗ what does not, behind ? the question.
RULES = r"""
fractions
    \frac{3}{4} ✓ \frac34 | \dfrac{3}{4} | \tfrac34 | 3/4 | \frac{6}{8} | 0.75
    \frac{3}{4} ✗ \frac43 | 34 | 0.7 | \frac{3}{4}\cdot 2
mixed numbers are sums and other neighbours are not
    3\frac12 ✓ \frac72 | 3.5 | 3 \frac{1}{2}
    \frac72 ✓ 3\frac12 | 3\frac24 ✗ 2\frac32
    3 ✗ 3\frac{0}{5} | 2\frac{5}{5}
    4\frac{\pi}{3} ✓ \frac{4\pi}{3}
    2^3\cdot3 ✓ 8(3) ✗ 21 3
    6 ✗ 2(3) | 2 3 | 5 1 | 5{1}
    5 ✗ 2(3) | (2)(3) | 2 3 | {2}{3} | 5 6
    \frac32 ✗ 3\frac12
decimals
    0.5 ✓ .5 | 0.50 | \frac12
    \frac13 ✓ 0.\overline{3} ✗ 0.333333 | 0.3 | 0.33 | 0.\overline{4}
    0.1\overline{6} ✓ \frac16
    \frac{4}{11} ✓ 0.\overline{36} | .\overline{36}
    5 ✓ \text{5} | \textbf{5} | \mathbf{ 5.0 } ✗ 5.0000001 | 4.9999999 | \text{6}
    \frac{1}{16} ✗ 0.06250001
    (\frac12,\frac13) ✓ (0.5,0.\overline{3}) ✗ (0.5,0.333333)
    -5 ✓ -5.0 ✗ 5
    -\frac34 ✓ -0.75
small numbers are not zero
    \frac{1}{2^{30}} ✗ 0 | 0.0 | 0.000000001
    \frac{1}{2187} ✗ 0.000457 | 0.0005
    \frac{1}{22} ✗ 0.0454545 | 0.045455
    \frac{1}{2^{2000}} ✗ \frac{1}{2^{2001}}
    (1,\frac{1}{2187}) ✗ (1,0.000457247) | (1,0.000457)
    3^{-40}\pi ✗ 0\pi
    0 ✗ 0.0000001
thousands
    1000 ✓ 1,000 | 1{,}000 | 1\,000 | 1 000 | 1,\!000 ✗ 1,0,0,0 | 1, 000, 1 | 100
    45,\!045 ✓ x = 45{,}045
units may be left out but not be others
    8\text{ cm} ✓ 8 | 8 cm | 8\,\mathrm{cm} | 8\text{ centimeters}
    8\text{ cm} ✗ 8\text{ km} | 8\text{ cm}^2 | 8\text{ hours}
    8\text{ cm}^2 ✓ 8 | 8\text{ square centimeters}
    8 ✓ 8\text{ cm} ? The sides have 3 cm and 5 cm. How long are they together?
    8 ✗ 8\text{ cm}
    210\text{ ways} ✓ 210 | 210\text{ ways}
    60^\circ ✓ 60 | 60^{\circ} | 60\text{ degrees} ✗ 60\text{ radians}
    10\text{ a.m.} ✗ 10\text{ p.m.}
a unit that is no measure stands in the question
    5 ✓ 5\text{ boxes} | 5 apples ✗ 5\text{ pieces} ? How many boxes of apples are there? Each has 2 pieces.
    5 ✗ 5\text{ parsecs} | 5 pears ? How many boxes of apples are there? Each has 2 pieces.
    5\text{ ways} ✓ 5 boxes ? How many boxes of apples are there? Each has 2 pieces.
    5\text{ cm} ✗ 5 apples ? How many boxes of apples are there? Each has 2 pieces.
units may stand for a measure of the same power
    8\text{ cm}^2 ✓ 8\text{ square units} | 8\text{ units}^2 ✗ 8\text{ units} | 8\text{ cubic units}
    8 ✓ 8\text{ units} ✗ 8\text{ square units} ? What is the perimeter?
    8 ✓ 8\text{ square units} ✗ 8\text{ units} ? What is the area?
a variable is no unit
    3t ✗ 3 | 3s
    6c ✗ 6 | 6m
    3m ✗ 3
money
    \$30 ✓ 30 | \$30.00 | 30\text{ dollars} ✗ 30\% | 30\text{ cents}
percentages
    30\% ✓ 30\text{ percent} ✗ 30 | 0.3 | \$30 | 0.3\%
    30\% ✓ 0.3 | \frac{3}{10} ✗ 30 | 0.3\% ? What is the probability?
    30\% ✓ 30 ✗ 0.3 | \frac{3}{10} ? What percent of 10 is 3?
    0.3 ✓ 30\% ✗ 0.3\% ? What is the probability?
    0.3 ✗ 30\% ? What is the slope?
    30 ✓ 30\% ? What percent of 10 is 3?
    30 ✗ 30\% ? How many are there?
numbers in a base
    861_{12} ✓ 861 | (861)_{12} | 861_{12} ✗ 861_{11} | 861_7 | 1213
    11 ✓ 11_2 ? Write 3 in base 2.
    11 ✗ 11_2 ? How many are there?
    3 ✗ 11_2 ? What is 11_2 in base 10?
    11 ✓ 11_{10} ✗ 11_{12}
    A_2 ✗ A_3
    B2_3 ✗ B2
intervals
    (-\infty,-5)\cup(-5,5) ✓ (-5,5)\cup(-\infty,-5)
    [-\tfrac18, \tfrac98] ✓ \left[-\frac{1}{8},\frac{9}{8}\right]
    (1,2] ✗ [1,2] | (1,2) | [1,2) | (1,3]
a union is of no more intervals than it takes
    [0,1]\cup[2,3]\cup[4,5] ✓ [4,5]\cup[2,3]\cup[0,1]
    [0,1]\cup[1,2] ✓ [1,2]\cup[0,1]
    [0,7] ✗ [0,5]\cup[3,7] | [0,7]\cup[0,7] | x\in[0,5]\cup[3,7]
    x\ge 5 ✗ [5,6]\cup[6,\infty)
    [0,1]\cup[2,3] ✗ [0,1]\cup[2,3]\cup[0,1] | [0,1]\cup([2,3]\cup[3,3])
tuples have an order
    (3,1,2) ✓ (3, 1, 2) | \left(3,1,2\right) | 3,1,2 ✗ (1,2,3) | 1,2,3 | \{3,1,2\}
    (1,2) ✗ (2,1) | \{1,2\} | [1,2]
    (1,2),(3,4) ✓ (3,4),(1,2) | \{(1,2),(3,4)\} ✗ (2,1),(3,4) | \{1,2\},\{3,4\}
sets and lists have none
    \{1,2,3\} ✓ \{3,1,2\} | 3,2,1 ✗ (1,2,3) | \{1,2\} | 1,2,3,4
    0,1 ✓ x = 1 \text{ or } x = 0 | 1 \text{ and } 0
    \sqrt2,-\sqrt2 ✓ \pm\sqrt{2}
    2,2,3 ✗ 2,3 | 3,3,2
    1,2 ✓ (1,2) ✗ [1,2] | (1,2]
    \{5\} ✓ 5
    5 ✓ \{5\}
    1,2,\ldots,10 ✓ 1, 2,\ldots, 10 ✗ 1,2,10
matrices
    \begin{pmatrix} 0 \\ 1/11 \end{pmatrix} ✓ \begin{bmatrix} 0 \\ \frac{1}{11} \end{bmatrix}
    \begin{pmatrix} 0 \\ 1/11 \end{pmatrix} ✗ \begin{pmatrix} 0 & 1/11 \end{pmatrix} | (0,\frac{1}{11})
    \begin{pmatrix} x \\ 2x \end{pmatrix} ✗ x\begin{pmatrix} 1 \\ 2 \end{pmatrix}
texts
    \text{odd} ✓ odd | \textbf{odd} | \text{Odd} | \displaystyle\text{odd} | x = \text{odd}
    \text{odd} ✗ \text{even} | \text{not odd} | \text{odd or even}
    \text{(A)} ✓ A | (A) | \text{A} ✗ \text{(B)} | A, B | \text{A or B}
    ABC ✓ \text{ABC} ✗ CBA | \text{ACB}
    \text{(E)}, ✓ \text{(E)}
    east ✗ seat
    5\text{ hours }30\text{ minutes} ✗ 30\text{ hours }5\text{ minutes}
times and ratios are text
    8:30 ✗ 4:15
    8:30\text{ p.m.} ✓ \text{8:30 pm} | 8:30\text{ PM} ✗ 8:30\text{ a.m.}
    3:4 ✗ 6:8 | \frac34
letters
    23a+39b ✓ 39b+23a ✗ 23A+39B
    x_1 ✗ x_2
    f'(x) ✗ f(x)
    a+A ✗ 2a
equations
    5 ✓ 5.0 | x=5 | 2+3=5 | f(2)=5 | \angle ABC = 5 ✗ 7=5 | x=10/3=5 | x=6
    2x+3y=6 ✓ 4x+6y=12 | y=2-\frac{2x}{3}
    x+y=6 ✓ 2x+2y=12 ✗ x+y=5+1
    x=1,y=2 ✓ 1,2 | (1,2) | y=2,x=1 ✗ 2,1 | (2,1) | x=2,y=1
    x=1,x=2 ✓ 2,1 | \{2,1\} | x=2,x=1 ✗ 1
    f(x+1)=x^2 ✓ f(1+x)=x^2 ✗ f(x+2-1)=x^2
    x^2+1=0 ✗ x^2+2=0
    x^2+2=-1 ✓ x^2+4=1
    x=5 ✗ y=5
a sum or a limit is left to nobody
    \sum_{k=1}^n a_k ✓ \sum_{k=1}^{n} a_k
    \sum_{k=1}^n a_k ✗ \sum_{k=2-1}^n a_k
    5050 ✗ \sum_{k=1}^{100} k | \int_0^{5050} 1 dx | \gcd(5050,10100)
the question is no answer
    2\sqrt2 ✗ \sqrt{8} ? Simplify $\sqrt 8$.
    2\sqrt2 ✓ \sqrt{8} ? How long is the diagonal?
    \frac12 ✗ 0.5 | x=0.5 ? Write $0.5$ as a fraction.
    5x ✗ 2x+3x | 3x+2x ? Simplify $2x+3x$.
    f(x)=x^2+5x+6 ✗ f(x)=(x+2)(x+3) ? Expand $(x+2)(x+3)$.
    5 ✓ x=5 ? Which is larger, $4$ or $5$?
    \left(1,2\right) ✓ (1,2) ? Is it $(1,2)$ or $(2,1)$?
a formula in several lines is read in pieces
    x^2+5x+6 ✗ (x+3)(x+2) ? Let $$\begin{align*} a &= (x+2)(x+3), \\ b &= 1. \end{align*} Expand $a$.$$
an operation of the known answer is open to an answer
    \binom{8}{3} ✓ \dbinom{8}{3} | \binom{8}{5} | 56
    56 ✗ \binom{8}{3}
    10! ✗ (4+6)!
    \log 3 ✗ \log(1+2) | 2\log\sqrt3 | 2\log(\sqrt3)
    \cos(x) ✗ \sin(\frac{\pi}{2}-x)
roots that can be drawn are drawn
    2+\sqrt3 ✗ \sqrt4+\sqrt3
    2+\sqrt[3]{3} ✗ \sqrt[3]{8}+\sqrt[3]{3}
    \sqrt3 ✗ \frac{\sqrt6}{\sqrt2}
    \frac{\sqrt6}{15} ✗ \frac{\sqrt2/\sqrt3}{5}
a variable has no needless factor, exponent or denominator
    x ✗ x^1
    x+1 ✗ x+x^0
    -x ✗ (-1)x
    (x,0) ✗ (x,0x)
    \frac{1}{x} ✗ \frac{x}{x^2}
    \frac{x}{6} ✗ \frac{x/2}{3}
    \frac{2x}{3} ✗ \frac{x}{1.5}
unreduced fractions are answers unless they are integers
    \frac{2}{3} ✓ \frac{8}{12}
    2 ✗ \frac{24}{12} | 24/12
no honest form is lost
    3+2\sqrt{5} ✓ 2\sqrt5+3 | 3+\sqrt{20}
    \frac{1+\sqrt5}{2} ✓ \frac12+\frac{\sqrt5}{2} | \frac{1}{2}(1+\sqrt{5}) | (1+\sqrt5)/2
    2^{10} ✓ 1024 | 4^5
    2^{2/3} ✓ \sqrt[3]{4}
    2\sqrt[n]{2} ✓ \sqrt[n]{2}\cdot2
    10! ✓ 3628800
    1.2\times10^5 ✓ 120000 | 1.2\cdot10^5
    \frac{2\sqrt3}{3} ✓ \frac{2}{3}\sqrt{3} | \frac{2}{\sqrt{3}} | \frac{\sqrt{12}}{3}
    \frac{\sqrt{21}}{3} ✓ \sqrt{\frac{7}{3}} | \frac{\sqrt7}{\sqrt3}
    10\pi ✓ 10 \cdot \pi | \pi\cdot 10
    \frac{3\pi}{4} ✓ \frac{3}{4}\pi | 3\pi/4 | 0.75\pi
    4\sqrt{2}+4 ✓ 4(\sqrt2+1) | 4+\sqrt{32}
    (x+2)(x+3) ✓ x^2+5x+6 ✗ x(x+5)+6
    y=2x+7 ✓ 2x+7 | y-7=2x | 2x-y+7=0
    x^2-2 ✓ (x-\sqrt{2})(x+\sqrt2) | -2+x^2
    \frac{x^2}{4}-1 ✓ \frac14x^2-1 | \frac{x^2-4}{4} | \frac{(x-2)(x+2)}{4}
    x^{-2} ✓ \frac{1}{x^2}
    \frac{n(n+1)}{2} ✓ \frac{n^2+n}{2} | \frac12 n(n+1)
    (x-1)^2+(y+2)^2=9 ✓ x^2-2x+y^2+4y-4=0
    \sqrt{x+1} ✓ (x+1)^{1/2}
    1+\sqrt{19},1-\sqrt{19} ✓ 1\pm\sqrt{19}
    (-\infty,\infty) ✓ \mathbb{R}
    x\ge 5 ✓ [5,\infty)
    \emptyset ✓ \{\}
    e^2 ✓ \exp(2)
    (1,\frac92) ✓ (x,y)=(1,9/2) | (1,4.5)
    [-10,4] ✓ x\in[-10,4]
    12\frac35 ✓ 12.6 | \frac{63}{5}
    3\cdot 2^n ✓ 2^n\cdot 3
    \frac{2^n}{3} ✓ \frac13\cdot2^n
    \frac{xy^2+x}{y} ✓ xy+\frac{x}{y}
    3+4i ✓ 4i+3
"""
LINE = re.compile(r"    (.+?)(?: ✓ (.+?))?(?: ✗ (.+?))?(?: \? (.+))?")


@pytest.mark.parametrize("line", [line for line in RULES.splitlines() if line[:1] == " "])
def test_an_answer_is_graded_by_what_it_means(grader, line):
    gold, right, wrong, question = LINE.fullmatch(line).groups(default="")
    assert right or wrong
    asked = problem(gold).model_copy(update={"problem": question})
    for answers, reward in ((right, 1.0), (wrong, 0.0)):
        for answer in filter(None, answers.split(" | ")):
            assert grader.grade(asked, f"\\boxed{{{answer}}}").reward == reward, answer


@pytest.mark.parametrize("completion", ["5", "\\boxed{ }", "\\boxed{5"])
def test_without_a_box_there_is_no_answer(grader, completion):
    assert grader.grade(problem("5"), completion).reason == verdicts.NO_ANSWER


def test_what_is_no_expression_is_unparsable(grader):
    assert grader.grade(problem("5"), "\\boxed{\\frac}").reason == verdicts.UNPARSABLE


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{5}", "\\boxed{\\text{ }}"])
def test_a_problem_without_an_answer_is_passed_by_nothing(grader, answer):
    assert grader.grade(problem(""), answer).reward == 0.0
