"""What this machine has and runs: Java, Spark, processes, ports, and files that only their owner may read."""
