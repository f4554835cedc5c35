"""The quorum of a cluster's metadata: copies on nodes, which of them counts, what is proven."""
