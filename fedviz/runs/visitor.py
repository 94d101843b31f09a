"""Who asks. A visitor is known by the hash of a secret that their browser holds; the secret itself is never kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from fedviz.runs.admission import Refused


@dataclass(frozen=True)
class Visitor:
    """Somebody who looks at runs and starts them. `admin`: whether they have shown the admin token."""

    id: str  # SHA-256 of the secret, in hex; "local" for whoever sits at the machine
    admin: bool = False

    @classmethod
    def of_secret(cls, secret: str) -> Visitor:
        """The visitor whose browser holds `secret`."""
        return cls(hashlib.sha256(secret.encode()).hexdigest())


LOCAL: Final = Visitor("local")  # everybody on a server that only its own machine reaches


class NotYours(Refused):
    """Another visitor's run: it can be watched, not controlled."""
