"""Pure functions: tables in, results out. The trial is the unit; nothing here accepts pooled seconds."""
