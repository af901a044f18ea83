"""Conversations that other programs have kept: detects their formats, reads them and stores them."""
