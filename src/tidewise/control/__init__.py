"""The control loop: pure decisions inside, input and output around it, a journal beside it."""
