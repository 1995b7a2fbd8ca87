"""What runs streaming jobs: the simulator, and Spark."""
