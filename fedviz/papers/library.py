"""All claims, in the order of the papers."""

from fedviz.papers import amplified, fedvarp, scaffold
from fedviz.papers.claims import Claim

CLAIMS: list[Claim] = [*scaffold.CLAIMS, *fedvarp.CLAIMS, *amplified.CLAIMS]
