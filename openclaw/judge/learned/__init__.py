"""A judge that is fitted to stored votes and people's ratings: a small linear classifier."""
