"""A judge that is learned from stored votes and what people said of the judge: a small linear classifier."""
