"""headrace: find what holds a MySQL-family server back, test every fix on your workload, prove the result."""

__version__ = "0.1.0"
