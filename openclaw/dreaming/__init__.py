"""Dreaming: a wish is learned from many everyday prompts that nobody asked, while anchors hold the policy elsewhere."""
