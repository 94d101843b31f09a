"""The dashboard: `streamlit run app.py`."""

import streamlit as st

from fedviz.ui.page import ICON

st.set_page_config(page_title="fedviz", page_icon=ICON, layout="wide", initial_sidebar_state=320)
st.navigation([st.Page("pages/simulate.py", title="fedviz", default=True)], position="hidden").run()
