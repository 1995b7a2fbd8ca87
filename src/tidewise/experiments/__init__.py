"""Wires the concrete parts into runs and keeps what came of them; the only room that knows them all."""
