"""The Streamlit pieces that pages are made of: controls, previews, the live view, the words. Nothing here computes a run."""
