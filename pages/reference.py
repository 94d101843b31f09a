"""Everything one can choose, explained."""

from fedviz.ui import reference

reference.show()
