"""Conformance suites that any engine, policy or forecaster can run, those of outside packages included."""
