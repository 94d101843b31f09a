"""Earlier runs: find, open, compare, keep or delete them."""

from fedviz.ui import run_list

run_list.show()
