"""One engine for grids of trials: cohorts that are computed whole, workers here or on a cluster, and a store of results."""
