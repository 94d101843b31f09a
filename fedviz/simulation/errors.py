"""How a run can go wrong by itself."""


class Diverged(ArithmeticError):  # noqa: N818 - a state of the run, not a fault of the program
    """The model or a loss is no longer finite. `round` is the first bad round, `hint` says in plain words what to change."""

    def __init__(self, round: int, hint: str) -> None:
        self.round, self.hint = round, hint
        super().__init__(f"Diverged in round {round:,}. {hint}")
