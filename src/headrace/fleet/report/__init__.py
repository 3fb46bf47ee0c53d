"""Answers of many hosts, for people and as JSON."""
