"""The dashboard: `streamlit run app.py`."""

import streamlit as st

from fedviz.ui.page import ICON

st.set_page_config(page_title="fedviz", page_icon=ICON, layout="wide", initial_sidebar_state=320)
PAGES = [
    st.Page("pages/simulate.py", title="fedviz", default=True),
    # Not "reference": a fresh server would take that address for the file in pages/, and show it without this one around it.
    st.Page("pages/reference.py", title="Reference", icon=":material/menu_book:", url_path="catalogue"),
]
st.navigation(PAGES, position="hidden").run()
