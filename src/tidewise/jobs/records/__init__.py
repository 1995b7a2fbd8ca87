"""What the records of each job are: pure functions of a seed, an ordinal and a schedule, and their encodings."""
