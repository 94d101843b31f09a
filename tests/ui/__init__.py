"""Tests of the run manager, its store and its parts."""
