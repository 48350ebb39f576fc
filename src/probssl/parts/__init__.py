"""Parts: what a person chooses. Their contract (`part`)."""
