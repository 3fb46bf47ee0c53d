"""Figures of trials, races, effects, searches and series."""
