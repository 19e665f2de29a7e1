"""Escaping for TeX: what is written is printed, or is refused by name before any job."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid.algorithms import ALGORITHMS
from rapid.benchmarks import BENCHMARKS
from reports import labels
from reports.render import tex


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tiny_qwen & 5%", r"tiny\_qwen \& 5\%"),
        ("$#{}", r"\$\#\{\}"),
        ("a\\b^c~d", r"a\textbackslash{}b\textasciicircum{}c\textasciitilde{}d"),
        ("—", "---"),
        ("−0.5", "$-$0.5"),
        ("--x", "-{}-x"),
        ("[Ours]*", "{[}Ours]*"),
        ("*Ours", "{*}Ours"),
        ("`x`", r"\textasciigrave{}x\textasciigrave{}"),
        ("Intel® Café", r"Intel(R) Caf\'{e}"),
        ("x ≠ y", r"x $\neq$ y"),
        ("½ R² H₂", r"$\frac{1}{2}$ R\textsuperscript{2} H\textsubscript{2}"),
        ("α Ω Α λ", r"$\alpha$ $\Omega$ $\mathrm{A}$ $\lambda$"),
        ("→ ⊢ ∞", r"$\rightarrow$ $\vdash$ $\infty$"),
        ("ﬁ é", r"fi \'{e}"),  # a ligature, and a letter with a combining accent
        ("中", r"\texttt{U+4E2D}"),
        ("Table\N{NO-BREAK SPACE}8", "Table~8"),
        ("a\nb", "a b"),
        ("a\x07b", r"a\textbackslash{}x07b"),
        ("", ""),
        ("a" * 24, "a" * 24),
        ("a" * 25, r"\allowbreak ".join("a" * 25)),
        ("Qwen2.5-0.5B-Instruct", "Qwen2.5-0.5B-Instruct"),
    ],
)
def test_escaped_text_prints_as_it_was_written(text, expected):
    assert tex.escape(text) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("RAPID (H=8) r(H, Acc) NVIDIA H100", r"RAPID ($H=8$) $r(H,\mathrm{Acc})$ NVIDIA H100"),
        ("Nemotron-H-8B, H", "Nemotron-H-8B, $H$"),
        ("x.H", "x.H"),
        ("Hu" * 13, r"\allowbreak ".join("Hu" * 13)),
    ],
)
def test_only_a_lone_h_is_a_formula(label, expected):
    assert tex.render_label(label) == expected


def test_prose_has_code_and_references():
    text = "By `rapid accept`: see Table\N{NO-BREAK SPACE}8, and Table\N{NO-BREAK SPACE}9."
    expected = r"By \texttt{rapid accept}: see Table~\ref{rapid:tab:comparisons}, and Table~9."
    assert tex.render_prose(text, {8: "rapid:tab:comparisons"}) == expected


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(st.characters(codec="utf-8")))
def test_any_text_becomes_ascii_with_balanced_braces(text):
    escaped = tex.escape(text)
    assert escaped.isascii()
    bare = re.sub(r"\\[{}]", "", escaped)
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert re.sub(r"\\\$", "", escaped).count("$") % 2 == 0


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(st.characters(codec="utf-8")))
def test_a_character_is_printed_or_listed_as_unprintable(text):
    named = set(tex.list_unprintable(text))
    code_points = {int(code, 16) for code in re.findall(r"U\+([0-9A-F]{4,})", tex.escape(text))}
    written = {ord(char) for char in unicodedata.normalize("NFC", text)}
    assert code_points & written <= set(map(ord, named)) | set(map(ord, "U+"))


@pytest.mark.parametrize(
    ("label", "message"),
    [("RAPID \N{CJK UNIFIED IDEOGRAPH-4E2D}", r"U\+4E2D"), (" ", "label is empty")],
)
def test_a_label_that_cannot_be_printed_is_refused(monkeypatch, label, message):
    monkeypatch.setattr(ALGORITHMS["pg"], "label", label)
    with pytest.raises(labels.BadLabel, match=f"algorithm pg: .*{message}"):
        labels.check_labels()


def test_a_benchmark_needs_a_label_of_its_own(monkeypatch):
    """The columns of tables are found by the label."""
    gcd = type("Gcd", (type(BENCHMARKS["math"]),), {"name": "gcd"})
    monkeypatch.setitem(BENCHMARKS, "gcd", gcd())
    with pytest.raises(labels.BadLabel, match="benchmark gcd: label 'MATH' is also that of math"):
        labels.check_labels()


def test_labels_of_all_algorithms_and_benchmarks_can_be_printed():
    labels.check_labels()
