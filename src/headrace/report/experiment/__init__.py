"""An experiment's report: one section per file; ``page`` orders them."""
