"""A broker on this machine, and what is sent to it and read from it."""
