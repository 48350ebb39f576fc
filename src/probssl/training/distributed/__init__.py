"""Several processes as one: which this is, what they exchange, and how a loss sees the rows of all."""
