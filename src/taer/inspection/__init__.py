"""Heads looked at: two versions compared (audit), and the errors of one (diagnosis)."""
