"""An experiment's report: one section a file; ``page`` puts them in their order."""
