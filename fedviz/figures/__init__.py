"""Charts of runs: records in, plotly figures out. Pure: no Streamlit, no torch, no database.

`views` says what goes in (RunView) and comes out (Figure), `style` how it looks, `drawing` how it is put together, `curves`,
`decomposition`, `windows`, `rasters` and `overlay` what is drawn, `marks` what is drawn upon it. A figure is plain plotly JSON with a
few extra words in `meta`, which `fedviz.ui.live_plotly` turns into title, legend and hover; `drawing` lists them.
"""

from fedviz.figures.curves import accuracy, heterogeneity, loss
from fedviz.figures.decomposition import decomposition, reading
from fedviz.figures.marks import marked
from fedviz.figures.overlay import overlay
from fedviz.figures.rasters import Taken, label_counts, participation, participation_preview
from fedviz.figures.views import Figure, Parent, RunView
from fedviz.figures.windows import windows

__all__ = [
    "Figure",
    "Parent",
    "RunView",
    "Taken",
    "accuracy",
    "decomposition",
    "heterogeneity",
    "label_counts",
    "loss",
    "marked",
    "overlay",
    "participation",
    "participation_preview",
    "reading",
    "windows",
]
