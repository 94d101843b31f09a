r"""Formulas in plain text, from the LaTeX in which algorithms, patterns and problems state them.

    v=\frac{1}{S}\sum_{i\in\mathcal S}(\Delta_i-y_i)   becomes   v = (1/S) Σ_(i∈𝒮) (Δ_i − y_i)

So that a terminal and a program read the same formula as the page, there is one source. This knows the LaTeX that fedviz uses, and
refuses any other command by name, so that a new one is noticed (a test renders every formula there is).
"""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\\\\(?:\[\w+\])?|\\[A-Za-z]+|\\.|[A-Za-z]|\d+|\S")

_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "theta": "θ",
    "kappa": "κ", "nu": "ν", "rho": "ρ", "phi": "φ", "omega": "ω", "zeta": "ζ", "eta": "η", "lambda": "λ", "mu": "μ",
    "xi": "ξ", "sigma": "σ", "tau": "τ", "Delta": "Δ", "nabla": "∇",
    "lfloor": "⌊", "rfloor": "⌋", "cdot": "·", "dots": "…", "times": "×", "{": "{", "}": "}", "mathbf": "", "bigl": "", "bigr": "",
}  # fmt: skip
_WORDS = {"log", "max", "min", "Pr"}
_SIGNS = {
    "=": "=", "-": "−", "+": "+", "*": "*", "leftarrow": "←", "to": "→", "in": "∈", "sim": "∼", "approx": "≈", "mid": "|", "pm": "±",
    "cup": "∪", "bmod": "mod",
}  # fmt: skip
_WIDE = "\t"  # until all is written
_SPACES = {",": " ", ";": " ", " ": " ", "quad": _WIDE}
_SCRIPT = {"S": "𝒮", "D": "𝒟", "N": "𝒩", "R": "ℝ"}
_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GROUP = re.compile(r"[^\W_]+")  # a subscript or a power that needs no brackets


def plain(latex: str) -> str:
    """The formula in plain text, a line for each of its lines. Raises ValueError, naming what is unknown in it."""
    reader = _Reader(latex)
    text = reader.until(None)
    lines = (re.sub(" +", " ", line).strip() for line in text.split("\n"))
    return unicodedata.normalize("NFC", "\n".join(re.sub(f" ?{_WIDE} ?", "   ", line) for line in lines))


class _Reader:
    """Reads tokens one after the other. Within a subscript or a power signs stand without spaces."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.texts: list[str] = []  # what \text{...} and \mathrm{...} say, word for word
        self.tokens = _TOKEN.findall(re.sub(r"\\(?:text|mathrm)\{([^}]*)\}", self._set_aside, latex))
        self.tight = 0
        self.cases = False

    def _set_aside(self, found: re.Match[str]) -> str:
        self.texts.append(found[1])
        return rf"\text {len(self.texts) - 1} "

    def until(self, end: str | None) -> str:
        """All up to the token `end`, which is read as well; None is the end of the formula."""
        written = ""
        while self.tokens and self.tokens[0] != end:
            written = _join(written, self.piece(written))
        if end is not None:
            self.take(end)
        return written

    def take(self, expected: str = "") -> str:
        if not self.tokens or (expected and self.tokens[0] != expected):
            raise ValueError(f"the formula {self.latex!r} ends or goes on where {expected or 'something'!r} should be")
        return self.tokens.pop(0)

    def argument(self) -> str:
        """What a command, a subscript or a power is applied to: one token, or a group."""
        if self.tokens and self.tokens[0] == "{":
            return self.piece("")
        if self.tokens and self.tokens[0].isdecimal():  # \frac12 is 1 over 2
            digits = self.take()
            if digits[1:]:
                self.tokens.insert(0, digits[1:])
            return digits[0]
        return self.piece("")

    def piece(self, before: str) -> str:
        """The next piece; `before` is what stands before it, by which a sign is known from an operation."""
        token = self.take()
        name = token[1:] if len(token) > 1 and token[0] == "\\" else token
        if token == "{":
            return self.until("}")
        if token in ("_", "^"):
            return self.script(token)
        if token.startswith("\\\\"):
            return " or " if self.cases else "\n"
        if token == "&":
            return " " if self.cases else ""
        if name in _SIGNS and (token[0] == "\\" or token == name):
            unary = not before.strip() or before.rstrip()[-1] in "(=←→,\n"
            return _SIGNS[name] if (self.tight and name != "bmod") or (unary and name in "-+") else f" {_SIGNS[name]} "
        if token[0] != "\\":
            return ", " if token == "," and not self.tight else token
        return self.command(name)

    def script(self, token: str) -> str:
        self.tight += 1
        inside = self.argument().strip()
        self.tight -= 1
        if token == "^" and inside.isdecimal():
            return inside.translate(_POWERS)
        return f"{token}{inside}" if _GROUP.fullmatch(inside) else f"{token}({inside})"

    def command(self, name: str) -> str:
        if name == "text":
            return self.texts[int(self.take())]
        if name in _SPACES:
            return _SPACES[name]
        if name in _LETTERS:
            return _LETTERS[name]
        if name in _WORDS:
            return name
        if name == "sum":
            self.tight += 1
            below = self.piece("") if self.tokens and self.tokens[0] == "_" else ""
            self.tight -= 1
            return f"Σ{below} "
        if name in ("mathcal", "mathbb"):
            letter = self.argument()
            return _SCRIPT[letter]
        if name == "bar":
            return f"{self.argument()}\u0304"
        if name == "sqrt":
            return f"√{_bracketed(self.argument())}"
        if name in ("frac", "tfrac"):
            above, below = _bracketed(self.argument()), _bracketed(self.argument())
            alone = not self.tokens or self.tokens[0] in (
                ",",
                "}",
                "\\ ",
                "\\\\",
                "\\\\[3pt]",
                "\\quad",
                "\\text",
                "\\end",
            )
            return f"{above}/{below}" if alone else f"({above}/{below}) "
        if name == "tbinom":
            return f"C({self.argument()}, {self.argument()})"
        if name in ("begin", "end"):
            kind = "".join(iter(lambda: self.take(), "}")).removeprefix("{")
            self.cases = kind == "cases" and name == "begin"
            return ""
        raise ValueError(
            f"the formula {self.latex!r} has \\{name}, which fedviz/formulas.py cannot write in plain text"
        )


def _bracketed(text: str) -> str:
    """In brackets, unless it is one number or one symbol with its index."""
    text = text.strip()
    return text if re.fullmatch(r"(\d+|\w)(_[^\W_]+)?|\|[^ |]+\|", text) else f"({text})"


def _join(before: str, piece: str) -> str:
    """Apart where two names would become one: after an index, and after a word."""
    name_ends = re.search(r"(_\w+|_\([^ ]*\)|\b[A-Za-z]{2,}|[²³])$", before)
    return f"{before} {piece}" if name_ends and piece[:1].isalpha() else before + piece
