"""Answers that are not rewarded, most of which equal the known answer in value but do not evaluate it.

Each group has a question, its known answer, and the attacks on it.
"""

import re
from collections.abc import Iterator
from itertools import permutations, product

PENS = "Ann has 34 pens and buys 57. How many pens does Ann have now?"
EGGS = "There are 182 eggs for 2 cooks. How many eggs does each cook get?"
POWER = "Compute $2^{10}$."
DIAGONAL = "Simplify $\\sqrt{180}$."
TILES = "How many tiles of $46 \\times 54$ are there?"
CHOICES = "In how many ways can 3 of 8 people be chosen?"
CHANCE = "Of 34 red and 57 blue balls one is drawn. What is the probability of red?"
SHARE = "Write $\\frac{8}{12}$ in lowest terms."
DECIMAL = "Write $0.\\overline{36}$ as a fraction."
PERCENT = "Write $45\\%$ as a decimal."
EXPAND = "Expand $(x+2)(x+3)$."
FACTOR = "Factor $x^2 - 9$."
LIKE = "Simplify $3x + 4 + 2x + 3$."
DIVIDE = "Simplify $\\frac{x^2-1}{x-1}$."
LINE = "Find the line through $(0,1)$ and $(1,3)$. Write it as $y=mx+b$."
SOLVE = "Solve $2x+45=53$ for $x$."
POINT = "Find the midpoint of $(1,2)$ and $(5,8)$."
ROOTS = "Find all roots of $x^2-5x+6$."
SURD = "Simplify $\\sqrt{50} + 1 + 2$."
CIRCLE = "What is the area of a circle of radius 6 cm?"
COMPLEX = "Compute $(1+2i)(3+i)$."
MATRIX = "Compute $3 \\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}$."
AREA = "A rectangle of 3 cm by 4 cm has which area?"
COST = "A pen costs \\$3. What do 4 pens cost?"
COSINE = "What is $\\cos 60^\\circ$?"
RANGE = "For which $x$ is $x^2 < 9$?"

ATTACKS = {
    (PENS, "91"): r"""
        34+57 | 57+34 | 34 + 57 | {34}+{57} | (34)+(57) | (34+57) | [34+57] | \{34+57\}
        \left(34+57\right) | 34+57+0 | 91+0 | 0+91 | 91-0 | 90+1 | 91\cdot 1 | 1\cdot 91 | 1(91)
        (1)(91) | 91\times1 | 91^1 | 91^{1} | 91^{2/2} | 91\cdot2^0 | 91/1 | \frac{91}{1} | 91\div 1
        \frac{182}{2} | 182/2 | \dfrac{182}{2} | \tfrac{182}2 | 182:2 | {182}\over{2} | \frac{-182}{-2}
        1/(1/91) | \frac{1}{\frac{1}{91}} | \frac{34+57}{1} | \frac{34}{1}+\frac{57}{1} | --91
        -(-91) | -(-34)+57 | 34-(-57) | 34 - -57 | +34+57 | 57-(-34) | 2\cdot 45.5 | 0.5\cdot182
        0.5(182) | \frac12\cdot182 | \frac{1}{2}(182) | 182\cdot\frac12 | 9.1e1 | 9.1E1 | 0.91E2
        9.1\cdot 10 | 9.1\times10^1 | 910\cdot10^{-1} | |{-91}| | |91| | \lvert -91\rvert | |-34-57|
        \lfloor 91.5 \rfloor | \lceil 90.5 \rceil | \lfloor 91 \rfloor | \sqrt{91^2} | \sqrt{8281}
        \sqrt{8281}+0 | \sqrt[3]{753571} | \sqrt{91}\sqrt{91} | \sqrt{91}^2 | (\sqrt{91})^2 | 91i^4
        -91i^2 | 91e^0 | 91\frac{\pi}{\pi} | \frac{91\pi}{\pi} | \frac{91x}{x} | 91x^0 | 91+x-x
        91+0x | 91\frac{x}{x} | \log_{10}10^{91} | \log 10^{91} | \ln e^{91} | \log_2 2^{91}
        91\sin 90^\circ | 91\cos 0 | 91\tan 45^\circ | \binom{14}{2} | \dbinom{14}{2} | \tbinom{14}{12}
        {14 \choose 2} | \binom{91}{1} | \binom{91}{90} | 91\cdot 0! | 91\cdot1! | \frac{91!}{90!}
        \gcd(91,182) | \min(91,92) | \max(34,91) | \sum_{k=1}^{13}k | \sum_{k=1}^{91}1 | \prod_{k=1}^1 91
        \int_0^{91}1dx | \lim_{x\to0}91 | 91 \mod 100 | \phantom{}91+0 | 34\frac{57}{1} | 90\frac{2}{2}
        34\frac{114}{2} | 90\frac{1}{1} | x=34+57 | 91=34+57 | 34+57=34+57 | 34+57=57+34
        34+57\approx 91 | x\in\{34+57\} | 34∔57 | 34+57\text{ pens} | \text{pens}=34+57 | \$34+57
        34+57\% | \frac{9100}{100} | 91.0\cdot1 | 90.5+0.5 | 0x5B | 91\circ1 | 91_{10}+0
        \det\begin{pmatrix}91\end{pmatrix} | \begin{vmatrix}91\end{vmatrix} | \begin{pmatrix}91\end{pmatrix}
        \begin{vmatrix}13&0\\0&7\end{vmatrix} | (34,57) | 34,57 | \{34,57\} | 3457 | 34\ 57 | 34 57
        \operatorname{floor}(91.5) | \frac{d}{dx}91x | 91\cdot\frac{2}{2} | 100-9 | 7\cdot 13 | 7(13)
        (7)(13) | {7}{13} | 13\ast 7 | 13*7 | 7×13 | 7·13 | (-7)(-13) | (-7)\cdot(-13) | (10-1)^2+10
        \frac{637}{7} | 91\text{ km}+0 | 91\text{ parsecs} | 91\text{ bananas} | 91\text{ dozens}
        \overline{91}+0 | \{34\}\cup\{57\} | 91\pm0 | \pm91 | 34+57i^4 | 34+57\cdot1
        [91,91] | \{91,91\} | 91,91 | \text{34+57} | \mathrm{34}+57 | 34{+}57 | \overline{34+57}
        \left.34+57\right. | 34+\!57 | 34+\phantom{0}57 | 34\text{ red }+57\text{ blue}
        x=y=34+57 | 34+57=x | f(x)=34+57 | \min\{91,100\} | 91\text{ or }34+57 | 91\neq92 | 91<92
        91\leq91 | 90<91 | \boxed{34+57} | \underbrace{34+57} | e^{\ln 91} | \Gamma(92) | 91\sqrt{1}
        91(-1)^2 | 91\frac{0}{1} | 34+57 \pmod{100} | 34 plus 57 | 34\text{ plus }57 | 91x
        """,
    (EGGS, "91"): r"\frac{182}{2} | 182/2 | 182\div2 | 182:2 | \frac{1}{2}182 | 182\cdot2^{-1} | 182/2\text{ eggs}",
    (POWER, "1024"): r"2^{10} | 2^10 | 2^{9}\cdot2 | 2\cdot2^9 | 4^5 | (2^5)^2 | 32^2 | 2^{9+1} | 2^{5}2^{5} | \left(2\right)^{10} | \sqrt{2^{20}}",
    (POWER, "2^{10}"): r"2^5\cdot2^5 | 512+512 | 2\cdot 512 | 2^9+2^9 | \sqrt{2^{20}} | 1024\cdot1 | 4^{6}/4",
    (DIAGONAL, "6\\sqrt{5}"): r"""
        \sqrt{180} | \sqrt {180} | \sqrt{180}+0 | 1\sqrt{180} | \sqrt{180}\cdot 1 | 180^{1/2} | 180^{0.5}
        180^{\frac12} | \frac{2\sqrt{180}}{2} | \frac{\sqrt{180}}{1} | \sqrt{36\cdot5} | \sqrt{36}\sqrt{5}
        \sqrt{36}\cdot\sqrt5 | \sqrt{90+90} | 2\cdot3\sqrt5 | 3\sqrt5+3\sqrt5 | \sqrt{45}+\sqrt{45} | \sqrt[2]{180}
        \frac{12\sqrt5}{2} | -(-6\sqrt5) | \sqrt{2}\sqrt{90} | \sqrt{\frac{360}{2}} | (\sqrt{180})^1 | x=\sqrt{180}
        """,
    (TILES, "2484"): r"46 \times 54 | 46 \cdot 54 | 46\cdot54 | 54\times46 | 46*54 | (46)(54) | 46(54) | 50^2-4^2 | (50-4)(50+4) | 2484.0\times1",
    (CHOICES, "56"): r"\binom{8}{3} | \dbinom{8}{3} | \tbinom83 | \binom{8}{5} | {8\choose3} | \frac{8!}{3!5!} | \frac{8\cdot7\cdot6}{6} | 8\cdot7 | C(8,3) | {}_8C_3 | \frac{8\cdot 7\cdot 6}{3!} | \frac{336}{6}",
    (CHOICES, "\\binom{8}{3}"): r"\binom{8}{3}+0 | 1\binom{8}{3} | \frac{8!}{3!5!} | 8\cdot 7",
    (CHANCE, "\\frac{34}{91}"): r"\frac{34}{34+57} | 34/(34+57) | \frac{34}{57+34} | 1-\frac{57}{91} | \frac{34}{57} | \frac{1}{1+\frac{57}{34}} | 34\cdot\frac{1}{91} | 34(91)^{-1} | \frac{\frac{34}{2}}{\frac{91}{2}} | \frac{17}{45.5} | 34 \div (34+57)",
    (SHARE, "\\frac{2}{3}"): r"\frac{8}{12} | 8/12 | \dfrac{8}{12} | \tfrac{8}{12} | \frac8{12} | x=\frac{8}{12} | \frac{8}{12}\cdot1 | \frac{4+4}{12} | 8\cdot\frac1{12} | 8\div12",
    (DECIMAL, "\\frac{4}{11}"): r"0.\overline{36} | .\overline{36} | 0.36 | \frac{0.\overline{36}}{1} | 0.36+0.00\overline{36}",
    (PERCENT, "0.45"): r"45\% | 45\text{ percent} | 45 | \frac{45}{100}\cdot1 | 45\cdot0.01 | \$0.45\cdot1",
    (EXPAND, "x^2+5x+6"): r"(x+2)(x+3) | (x+3)(x+2) | (2+x)(x+3) | (x+2)\cdot(x+3) | (x+2)(x+3)+0 | 1(x+2)(x+3) | x^2+3x+2x+6 | x\cdot x+5x+6 | x^2+5x+2\cdot3 | x^2+(2+3)x+6 | \frac{(x+2)(x+3)}{1}",
    (FACTOR, "(x-3)(x+3)"): r"x^2-9 | -9+x^2 | x^2-9+0 | x^2+0x-9 | x^2-3^2 | 1\cdot(x^2-9) | x^2+3x-3x-9 | \frac{(x^2-9)}{1} | \frac{x(x^2-9)}{x}",
    (LIKE, "5x+7"): r"3x+4+2x+3 | 3x+2x+7 | 5x+4+3 | 2x+3+3x+4 | (3+2)x+7 | x+4x+7 | 5x+7+0 | 5x+7+y-y | 5\cdot1x+7 | 5x+3.5+3.5",
    (DIVIDE, "x+1"): r"\frac{x^2-1}{x-1} | (x^2-1)/(x-1) | \frac{-1+x^2}{x-1} | \frac{(x-1)(x+1)}{x-1} | \frac{2(x^2-1)}{2(x-1)} | \frac{x^2-1}{x-1}+0 | (x^2-1)(x-1)^{-1}",
    (LINE, "y=2x+1"): r"y=2x+1+0 | y=\frac{3-1}{1-0}x+1 | y=x+x+1 | y=2x+3-2 | y=\frac{2}{1}x+1 | 0=0 | y=y | y=\frac{3-1}{1}(x-0)+1",
    (SOLVE, "4"): r"2x+45=53 | \frac{53-45}{2} | (53-45)/2 | \frac{8}{2} | x=\frac{8}{2} | x=53-49 | x = \frac{53}{2}-\frac{45}{2} | 53-45=4x | 2^2 | 2x=8 | \{x: 2x+45=53\}",
    (SOLVE, "x=4"): r"2x=8 | 2x+45=53 | x=\frac{8}{2} | x=2+2 | x-4=0 | 4x=16 | 45+2x=53",
    (POINT, "(3,5)"): r"\left(\frac{1+5}{2},\frac{2+8}{2}\right) | (\frac62,5) | (3,\frac{10}{2}) | (1+2,5) | (3,2+3) | 3+5i | (5,3) | \{3,5\} | (3,5)+(0,0) | (\sqrt{9},5) | \frac{(1,2)+(5,8)}{2}",
    (ROOTS, "2,3"): r"\frac{5\pm1}{2} | \frac{5+1}{2},\frac{5-1}{2} | 2,\frac{6}{2} | 1+1,3 | \{2\}\cup\{3\}\cup\{2+1\} | 2.5\pm0.5 | x^2-5x+6=0 | \{x:x^2=5x-6\} | 2,3,3 | 2,3,4 | \sqrt4,\sqrt9",
    (SURD, "3+5\\sqrt{2}"): r"\sqrt{50}+1+2 | 1+2+5\sqrt2 | 3+\sqrt{2}+4\sqrt2 | 3+\sqrt{8}+\sqrt{18} | 2+1+\sqrt{50} | 3+5\sqrt2+0 | \sqrt9+5\sqrt2 | 3+5\cdot\sqrt[2]{2}+\sqrt{0}",
    (CIRCLE, "36\\pi"): r"6^2\pi | \pi6^2 | \pi\cdot6^2 | 6\cdot6\pi | \frac{72\pi}{2} | 18\pi+18\pi | (6\pi)6 | 36\pi\text{ km} \cdot 1 | \pi(6)^2 | 113.1 | 36\pi\text{ parsecs} | \frac{36\pi^2}{\pi}",
    (COMPLEX, "1+7i"): r"(1+2i)(3+i) | 3+7i+2i^2 | 3+i+6i+2i^2 | 1+6i+i | 3-2+7i | 1+7\sqrt{-1} | 1+7i+0",
    (MATRIX, "\\begin{pmatrix} 3 \\\\ 6 \\end{pmatrix}"): r"3\begin{pmatrix}1\\2\end{pmatrix} | 3\cdot\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}3\cdot1\\3\cdot2\end{pmatrix} | \begin{pmatrix}3\\2\cdot3\end{pmatrix} | \begin{pmatrix}1\\2\end{pmatrix}+\begin{pmatrix}2\\4\end{pmatrix} | \begin{pmatrix}3\\\frac{12}{2}\end{pmatrix} | \begin{pmatrix}1\\2\end{pmatrix}3",
    (AREA, "12\\text{ cm}^2"): r"12\text{ parsecs} | 12\text{ cm} | 12\text{ m}^2 | 12\text{ cm}^3 | 12\text{ apples} | 12\text{ cm by cm} | 3\cdot4\text{ cm}^2 | 3\times4 | 12\text{ hours} | \$12 | 12^\circ | 12\% | 12\text{ rectangles} | 12\,\mathrm{furlongs}",
    (COST, "\\$12"): r"3\cdot4 | \$3\cdot4 | 4\times\$3 | 12\text{ cents} | 12\% | 12\text{ euros} | 12\text{ cm} | \$3+\$3+\$3+\$3 | \$12+0",
    (COSINE, "\\frac{1}{2}"): r"\cos 60^\circ | \cos(60) | \cos\frac{\pi}{3} | \sin 30^\circ | \cos 60 | 2^{-1} | \frac{\sqrt{1}}{2} | \frac{\sqrt{4}}{4} | 1-0.5 | \frac{1}{1+1} | \sqrt{\frac14} | 0.5^1",
    ("", "5"): r"""
        6 | 5 or 6 | \{5, 6\} | 1,2,3,4,5 | \{4,5\} | [4,6] | (-\infty,\infty) | \mathbb{R} | 5 \in \mathbb{R}
        x \in \mathbb{R} | x | x=x | x > 4 | 4 < 5 | 5 \pm 1 | \pm 5 | \{5\} \cup \{6\} | x=5 \text{ or } 6
        5\text{ or 6} | 5\text{ or six} | 5\text{ and perhaps }6\text{ cm} | 5;6 | 5:6 | \min(5,6)
        \phantom{6}5 | \frac{0}{0} | print | lambda | None | True | __import__ | S | pi | nan | oo
        \text{print} | \text{None} | \text{S} | \text{oo}
        """,
    ("", "\\infty"): r"\frac{1}{0} | \infty-\infty",
    ("", "\\frac{1}{2}"): r"anything \frac{1}{2} anything",
    ("", "\\text{A}"): r"\text{A}, \text{B}, \text{C} | \text{B}",
    ("", "\\text{yes}"): r"\text{yes or no} | \text{no}",
    (RANGE, "(-3,3)"): r"(-3,3)\cap(-3,3+0) | (-3,1+2) | (-\sqrt9,\sqrt9) | (-\frac62,3) | x^2<9 | [-3,3] | (-3,3] | (0-3,3)",
}  # fmt: skip


def split_answers(text: str) -> list[str]:
    """Return the separate answers of a text."""
    return [answer for line in text.splitlines() for answer in line.strip().split(" | ") if answer]


OPERATORS = ("+", "-", "*", "/", r"\times ", r"\cdot ", r"\div ", ":", " + ", " ")
TEMPLATES_OF_AN_OPERATION = (
    r"{a}{o}{b} | ({a}){o}({b}) | ({a}{o}{b}) | x={a}{o}{b} | {a}{o}{b}+0 | 1\cdot {a}{o}{b}"
)
TEMPLATES_OF_TWO_NUMBERS = r"""
    \frac{{{a}}}{{{a}+{b}}} | {a}/({b}+{a}) | 1-\frac{{{b}}}{{{a}+{b}}} | {a}-(-{b}) | -(-{a}-{b})
    |{a}-{b}| | {a}\frac{{{b}}}{{1}} | \sqrt{{({a}+{b})^2}} | ({a}+{b})^1 | ({a})({b}) | \binom{{{a}}}{{{b}}}
"""


def transcribe_question(question: str) -> Iterator[str]:
    """Yield the numbers of a question with operations between them that are not evaluated."""
    numbers = list(dict.fromkeys(re.findall(r"\d+", question)))
    for a, b in permutations(numbers, 2):
        yield from (
            template.format(a=a, b=b) for template in split_answers(TEMPLATES_OF_TWO_NUMBERS)
        )
        for operator, template in product(OPERATORS, split_answers(TEMPLATES_OF_AN_OPERATION)):
            yield template.format(a=a, b=b, o=operator)
    for a, b, c in permutations(numbers, 3):
        yield rf"\frac{{{a}-{b}}}{{{c}}}"
        for first_operator, second_operator in product("+-*/", repeat=2):
            yield from (
                f"{a}{first_operator}{b}{second_operator}{c}",
                f"({a}{first_operator}{b}){second_operator}{c}",
            )
