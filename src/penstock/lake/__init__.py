"""The cold tables: their columns, and the rows that bundles become."""
