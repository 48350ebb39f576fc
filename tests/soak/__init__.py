"""Faults at random: `make soak MINUTES=30 SEED=1` kills, damages and starves, and counts what breaks."""
