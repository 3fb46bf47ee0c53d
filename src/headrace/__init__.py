"""headrace: find what limits a MySQL-family server, test fixes on your workload, and prove the gain."""

__version__ = "0.1.0"
