"""Scores a trained model against another on conversations, coding and tool use."""
