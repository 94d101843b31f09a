"""Choose, press Run, watch."""

from fedviz.ui import page

page.simulate()
