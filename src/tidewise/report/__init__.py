"""Turns the folders of finished runs into one self-contained page."""
