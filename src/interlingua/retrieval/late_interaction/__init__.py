"""Late interaction: token stores, MaxSim, and its retriever."""
