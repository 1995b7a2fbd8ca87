"""A model of a streaming job in steps of one second."""
