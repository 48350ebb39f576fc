"""One engine for grids of trials: cohorts computed whole, workers here or on a cluster, a store of results."""
