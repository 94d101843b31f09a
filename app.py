"""The dashboard: `streamlit run app.py`."""

import streamlit as st

from fedviz.ui.page import ICON

st.set_page_config(page_title="fedviz", page_icon=ICON, layout="wide", initial_sidebar_state=320)
PAGES = [
    st.Page("pages/simulate.py", title="fedviz", default=True),
    # Not "reference", "runs", "admin": a fresh server would take such an address for the file in pages/, and show it without this
    # one around it.
    st.Page("pages/reference.py", title="Reference", icon=":material/menu_book:", url_path="catalogue"),
    st.Page("pages/runs.py", title="Runs", icon=":material/history:", url_path="all-runs"),
    st.Page("pages/admin.py", title="Admin", icon=":material/shield_person:", url_path="operations"),
    # What one would guess.
    st.Page("pages/reference.py", title="Reference", icon=":material/menu_book:", url_path="reference"),
    st.Page("pages/runs.py", title="Runs", icon=":material/history:", url_path="runs"),
    st.Page("pages/admin.py", title="Admin", icon=":material/shield_person:", url_path="admin"),
]
st.navigation(PAGES, position="hidden").run()
