"""Tests. Each states the fact that it proves in its name, and takes its expected value from elsewhere than the code."""
