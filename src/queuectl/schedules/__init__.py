"""Recurring jobs: when a schedule fires."""
