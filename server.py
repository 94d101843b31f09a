"""The dashboard as a server that knows its visitors again: `streamlit run server.py`. `app.py` alone works too, without the cookie."""

import sys

from starlette.middleware import Middleware
from streamlit.runtime.pages_manager import PagesManager
from streamlit.starlette import App

from fedviz.runs.limits import LimitError, Limits
from fedviz.ui.cookie import VisitorCookie
from fedviz.ui.uploads import UploadBounds

try:
    sys.stdout.write("\n  ".join(["fedviz allows:", *Limits.from_environment().describe()]) + "\n")
except LimitError as error:
    sys.exit(str(error))
# Else the first visitor after a start would get the files in pages/ as they are, under other addresses, for app.py has not named them yet.
PagesManager.uses_pages_directory = False
app = App("app.py", middleware=[Middleware(UploadBounds), Middleware(VisitorCookie)])
