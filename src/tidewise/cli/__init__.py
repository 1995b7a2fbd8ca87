"""The command line: every command teaches by example and speaks plainly when something is wrong."""
