"""Screens: browser drivers, elements, actions, and the sites of tasks."""
