"""Formulas in plain text say what their LaTeX says: examples written by hand, and every formula that fedviz has."""

import re
import unicodedata

import pytest

from fedviz.algorithms import ALGORITHMS
from fedviz.catalogue import SYMBOLS, catalogue
from fedviz.formulas import plain

EVERY = {
    f"{kind} {name}": entry
    for kind, entries in catalogue().items()
    for name, entry in entries.items()
    if entry["formula"]
}


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"v=\frac{1}{S}\sum_{i\in\mathcal S}(\Delta_i-y_i)", "v = (1/S) Σ_(i∈𝒮) (Δ_i − y_i)"),
        (r"\frac12x_3^2", "(1/2) x_3²"),
        (r"n_i=\frac nN", "n_i = n/N"),
        (r"\frac1{Na}", "1/(Na)"),
        (r"\frac{a+b}{c_i}x", "((a + b)/c_i) x"),
        (r"\frac1{|\mathcal S_r|}", "1/|𝒮_r|"),
        (r"-x+(-y)-z", "−x + (−y) − z"),
        (r"w\leftarrow w_{\mathrm{start}}+\gamma\,(w-w_{\mathrm{start}})", "w ← w_start + γ (w − w_start)"),
        (r"\sqrt{\mu/H}\,c\pm\sqrt s", "√(μ/H) c ± √s"),
        (r"\bar g_{r,i}", "ḡ_(r,i)"),
        (r"p_if_i(w)", "p_i f_i(w)"),
        (r"\mathbb R^{200\times D}\quad\mathbb R^{512}", "ℝ^(200×D)   ℝ⁵¹²"),
        (r"\begin{aligned}&a=1\\[3pt]&b=\{1,\dots,N\}\end{aligned}", "a = 1\nb = {1, …, N}"),
        (r"x=\begin{cases}a&\text{on duty}\\b&\text{off duty}\end{cases}", "x = a on duty or b off duty"),
        (r"\text{every } P \text{ rounds}", "every P rounds"),
        (  # the example in CONTRIBUTING.md
            r"v=\frac{1}{S}\sum_{i\in\mathcal S}(\Delta_i-y_i)+\frac{1}{N}\sum_j y_j,\quad y_i\leftarrow\kappa\,\Delta_i",
            "v = (1/S) Σ_(i∈𝒮) (Δ_i − y_i) + (1/N) Σ_j y_j,   y_i ← κ Δ_i",
        ),
        ("", ""),
    ],
)
def test_latex_becomes_plain_text(latex: str, text: str) -> None:
    assert plain(latex) == text


def test_the_formulas_of_the_papers_read_as_the_papers_have_them() -> None:
    def lines(name: str) -> list[str]:
        return EVERY[f"algorithms {name}"]["formula_text"].splitlines()

    mean = "v = (1/S) Σ_(i∈𝒮) Δ_i"
    assert lines("fedvarp") == ["v = (1/S) Σ_(i∈𝒮) (Δ_i − y_i) + (1/N) Σ_j y_j", "then y_i ← Δ_i,   i ∈ 𝒮"]
    assert lines("cluster_fedvarp")[:2] == [
        "v = (1/S) Σ_(i∈𝒮) (Δ_i − y_(c(i))) + Σ_k (n_k/N) y_k",
        "then y_k ← (1/|𝒮_k|) Σ_(i∈𝒮_k) Δ_i",
    ]
    assert lines("scaffold") == [
        "g_i(u) → g_i(u) + c − c_i", mean, "then c_i ← ḡ_i,   i ∈ 𝒮", "(option I: c_i ← ∇f_i(w))", "c ← (1/N) Σ_j c_j",
    ]  # fmt: skip
    assert lines("amplified_scaffold") == [
        "g_i(u) → g_i(u) + G − G_i", mean, "after every P rounds:", "w ← w_start + γ (w − w_start)",
        "G_i ← (Σ_r q_r^i ḡ_(r,i))/(Σ_r q_r^i) if seen", "G ← (1/N) Σ_j G_j",
    ]  # fmt: skip
    move = f"{mean},   δ = η_c τv"
    assert lines("fedavgm") == [move, "m ← βm + δ", "w ← w − η_s m"]
    first, last = [move, "m ← β_1 m + (1 − β_1) δ"], ["w ← w − η_s m/(√s + ε)"]
    assert lines("fedadam") == [*first, "s ← β_2 s + (1 − β_2) δ²", *last]
    assert lines("fedyogi") == [*first, "s ← s − (1 − β_2) δ² sign(s − δ²)", *last]


@pytest.mark.parametrize("which", EVERY)
def test_every_formula_is_plain_text_of_the_same_letters_and_numbers(which: str) -> None:
    """No LaTeX is left, brackets match, and what \\text says and every Latin letter and digit of the formula stands in it, in order."""
    latex, text = EVERY[which]["formula"], EVERY[which]["formula_text"]
    assert text == plain(latex)
    assert not set(text) & set("\\&$~")
    assert ("{" in text) == (r"\{" in latex)
    assert all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}", "⌊⌋"))
    assert "  " not in text.replace("   ", "")
    kept = re.sub(r"\\(begin|end)\{\w+\}|\\\\\[3pt\]", "", latex)
    kept = re.sub(r"\\(log|max|min|Pr)", r" \1", kept.replace(r"\tbinom", " C").replace(r"\bmod", " mod"))
    kept = re.sub(r"\\[A-Za-z]+", "", kept)
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹𝒮𝒟𝒩ℝ", "0123456789SDNR")
    found = re.sub(r"[^A-Za-z0-9]", "", unicodedata.normalize("NFD", text).translate(powers))
    if "cases" not in latex:  # whose cases are joined by a word
        assert found == re.sub(r"[^A-Za-z0-9]", "", kept)


def test_what_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"has \\oint, which fedviz/formulas\.py cannot write"):
        plain(r"\oint x")
    with pytest.raises(ValueError, match="ends or goes on"):
        plain(r"\frac1")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_symbol_of_an_algorithms_formula_is_explained(name: str) -> None:
    """By the legend of all, or as the symbol of one of its own parameters; words and running indices aside."""
    text = EVERY[f"algorithms {name}"]["formula_text"]
    for word in ("then", "after", "every", "rounds", "option I", "sign", "if seen", "those of", "in cluster", "if any"):
        text = text.replace(word, "")
    own = [p["symbol"] for p in EVERY[f"algorithms {name}"]["parameters"]]
    beside = ["𝒮", "n_k", "ḡ_i"]  # explained with another symbol
    assert all(any(symbol in meaning for meaning in SYMBOLS.values()) for symbol in beside)
    legend = " ".join([*SYMBOLS, *beside, *own]).replace("β1 β2", "β_1 β_2")
    for symbol in re.findall(r"[^\W\d_](?:_(?!\()[^\W_]+)?", text):
        letter = symbol.split("_")[0]
        if letter not in "ijkr∇Σ²":
            assert re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])", legend), symbol
