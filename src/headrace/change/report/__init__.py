"""What production says of a change, as a page."""
