"""Fixtures of pytest's own plugins that the tests use."""

pytest_plugins = ["pytester"]
