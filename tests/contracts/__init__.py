"""One suite for each interface that has several implementations."""

import pytest

pytest.register_assert_rewrite("tests.contracts.target")
