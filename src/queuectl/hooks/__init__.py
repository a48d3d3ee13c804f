"""Hooks: which notifications a run causes, and how webhooks are sent."""
